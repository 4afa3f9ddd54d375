// Keeps a page up to date: it loads the page again when the server says that it has changed,
// and counts seconds in between. Without this script the pages are complete, too.
"use strict";
(() => {
	const stream = document.body.dataset.stream;
	if (!stream) {
		document.getElementById("errors")?.focus();
		return;
	}
	const units = document.body.dataset.units.split("|");
	const offline = document.getElementById("offline");
	let shownAt = performance.now(); // when the times on the page were true
	let seenAt = new Date();
	let events = null;
	let loading = false;
	let again = false;

	// span is seconds of text.go.
	function span(ms) {
		const s = Math.floor(Math.max(ms, 0) / 1000);
		const two = (n) => String(n).padStart(2, "0");
		if (s < 60) return s + units[0];
		if (s < 3600) return Math.floor(s / 60) + units[1] + two(s % 60) + units[0].trimEnd();
		if (s < 86400) return Math.floor(s / 3600) + units[2] + two(Math.floor(s / 60) % 60) + units[1].trimEnd();
		return Math.floor(s / 86400) + units[3] + two(Math.floor(s / 3600) % 24) + units[2].trimEnd();
	}

	// tick counts on, unless the page shows what was true before the store or the server went.
	function tick() {
		if (!offline.hidden || document.querySelector("#live[data-still]")) return;
		const passed = performance.now() - shownAt;
		for (const e of document.querySelectorAll("[data-age]")) {
			e.textContent = span(Number(e.dataset.age) + passed);
		}
		for (const e of document.querySelectorAll("[data-left]")) {
			const left = Math.max(Number(e.dataset.left) - passed, 0);
			if (!e.dataset.full) {
				e.textContent = span(left);
				continue;
			}
			const percent = Math.floor(100 * left / Number(e.dataset.full));
			e.setAttribute("width", String(percent));
			e.setAttribute("class", "fill " + (percent < 10 ? "ends" : percent < 33 ? "late" : "good"));
		}
	}

	// show replaces what is live, and keeps the focus where it was.
	function show(text) {
		const now = document.getElementById("live");
		const next = new DOMParser().parseFromString(text, "text/html").getElementById("live");
		if (!now || !next) {
			location.reload();
			return;
		}
		const href = now.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
		now.replaceWith(document.adoptNode(next));
		if (href) {
			for (const a of next.querySelectorAll("a")) {
				if (a.getAttribute("href") === href) {
					a.focus({ preventScroll: true });
					break;
				}
			}
		}
		shownAt = performance.now();
		seenAt = new Date();
	}

	// reads reports whether the visitor is marking text, which a new page would undo.
	function reads() {
		const s = getSelection();
		return s && !s.isCollapsed && document.getElementById("live")?.contains(s.anchorNode);
	}

	async function load() {
		if (loading || document.hidden || reads()) {
			again = true;
			return;
		}
		loading = true;
		again = false;
		try {
			const answer = await fetch(location.href, { cache: "no-store" });
			if (answer.ok) show(await answer.text());
			else location.reload();
		} catch {
			again = true; // the stream has broken, too: it says when to go on
		}
		loading = false;
	}

	// follow keeps one request open, while the page is in view: a browser has at most six connections
	// to one server without TLS, and a hidden tab would keep one from a tab that is read.
	function follow() {
		if (document.hidden || events && events.readyState !== EventSource.CLOSED) return;
		events = new EventSource(stream);
		events.addEventListener("change", load);
		events.onopen = () => { offline.hidden = true; };
		events.onerror = () => {
			if (offline.hidden) {
				offline.querySelector("time").textContent = seenAt.toISOString().slice(11, 19) + " UTC";
				offline.hidden = false;
			}
			if (events.readyState === EventSource.CLOSED) { // the server answers, but not with a stream
				load();
				setTimeout(follow, 3000);
			}
		};
	}

	setInterval(() => {
		tick();
		if (again) load();
	}, 1000);
	document.addEventListener("visibilitychange", () => {
		if (document.hidden) {
			events?.close();
			return;
		}
		follow();
		load();
	});
	follow();
})();
