import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/**
 * Plays ../conformance/cases.json over plain HTTP; its README.md has the steps.
 *
 * <pre>java Conformance.java</pre>
 *
 * It is also an example of how a Java program speaks to fencelock serve without a client.
 */
public class Conformance {
    static final String SERVER = System.getenv("CONFORMANCE_SERVER");
    static final String FAULTS = System.getenv("CONFORMANCE_FAULTS");
    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** An answer, and the server that gave it. */
    record Answer(int status, Map<String, Object> body, String at) {
        /** The problem, or "" if there is none. */
        String problem() {
            return status == 200 ? "" : String.valueOf(body.get("type")).replaceFirst(".*/", "");
        }
    }

    final Map<String, Answer> leases = new HashMap<>();
    final Map<String, CompletableFuture<HttpResponse<String>>> started = new HashMap<>();
    final Map<String, Object> requestIds = new HashMap<>();
    final String key;

    Conformance(String key) {
        this.key = key;
    }

    public static void main(String[] args) throws Exception {
        var cases = list(map(Json.read(Files.readString(Path.of(System.getenv("CONFORMANCE_CASES"))))).get("cases"));
        boolean failed = false;
        for (int n = 0; n < cases.size(); n++) {
            var each = map(cases.get(n));
            if (list(each.getOrDefault("needs", List.of())).contains("renewal")) {
                continue;
            }
            try {
                var keys = list(each.getOrDefault("each_key", List.of("k")));
                for (int i = 0; i < keys.size(); i++) {
                    new Conformance("java/" + n + "/" + i + "/" + keys.get(i)).play(list(each.get("steps")));
                }
                System.out.println("played java: " + each.get("name"));
            } catch (AssertionError | Exception e) {
                failed = true;
                System.out.println("FAILED java: " + each.get("name") + ": " + e);
            }
        }
        System.exit(failed ? 1 : 0);
    }

    void play(List<Object> steps) throws Exception {
        try {
            for (var step : steps) {
                play(map(step));
            }
        } finally {
            for (var lease : leases.values()) {
                release(lease);
            }
        }
    }

    void play(Map<String, Object> step) throws Exception {
        String name = String.valueOf(step.get("lease"));
        Answer lease = leases.get(name);
        switch (String.valueOf(step.get("do"))) {
            case "acquire" -> keep(step, name, acquire(step));
            case "start" -> {
                var claim = claim(step);
                requestIds.put(name, claim.get("request_id"));
                started.put(name, HTTP.sendAsync(request(SERVER, "/v1/acquire", claim, 60), BodyHandlers.ofString()));
            }
            case "finish" -> keep(step, name, answer(started.get(name).get(), SERVER));
            case "cancel" -> {
                started.get(name).cancel(true);
                post(SERVER, "/v1/leave", Map.of("key", key, "request_id", requestIds.get(name)));
            }
            case "line" -> line(step);
            case "check" -> expect(step, post(lease.at, "/v1/check", Map.of("handle", lease.body.get("handle"))));
            case "release" -> expect(step, release(lease));
            case "break" -> expect(step, post(SERVER, "/v1/break",
                    Map.of("key", key, "token", lease.body.get("token"), "reason", step.get("reason"))));
            case "rises" -> {
                var names = list(step.get("leases"));
                for (int i = 1; i < names.size(); i++) {
                    verify(token(names.get(i - 1)) < token(names.get(i)), step, "the tokens do not rise");
                }
            }
            case "same" -> {
                var all = list(step.get("leases")).stream().map(leases::get).toList();
                for (String member : List.of("handle", "token")) {
                    var first = all.get(0).body.get(member);
                    verify(all.stream().allMatch(a -> a.body.get(member).equals(first)), step, member + " differs");
                }
            }
            case "once" -> once(step);
            case "post" -> {
                var body = new LinkedHashMap<>(map(step.get("body")));
                body.replaceAll((member, value) -> "$k".equals(value) ? key
                        : String.valueOf(value).startsWith("$")
                        ? leases.get(value.toString().substring(1)).body.get("handle") : value);
                var answer = post(SERVER, String.valueOf(step.get("path")), body);
                verify(answer.status == number(step.get("status")), step, answer);
                verify(answer.problem().equals(step.getOrDefault("problem", "")), step, answer);
            }
            default -> throw new AssertionError("no such step: " + step);
        }
    }

    void keep(Map<String, Object> step, String name, Answer answer) {
        expect(step, answer);
        if (answer.status == 200) {
            leases.put(name, answer);
        } else if (step.containsKey("holder")) {
            var holder = map(list(answer.body.get("holders")).get(0));
            map(step.get("holder")).forEach((member, value) -> verify(value.equals(holder.get(member)), step, holder));
        }
    }

    Answer acquire(Map<String, Object> step) throws InterruptedException {
        var servers = list(step.getOrDefault("through", List.of("server"))).stream()
                .map(name -> name.equals("server") ? SERVER : FAULTS + "/" + name).toList();
        return persist(servers, "/v1/acquire", claim(step));
    }

    Map<String, Object> claim(Map<String, Object> step) {
        var body = new LinkedHashMap<String, Object>();
        body.put("key", key);
        for (String member : List.of("kind", "permits", "size", "owner", "note", "request_id", "slot")) {
            if (step.containsKey(member)) {
                body.put(member, step.get(member));
            }
        }
        body.putIfAbsent("request_id", UUID.randomUUID().toString());
        for (String member : List.of("ttl", "wait")) {
            if (step.containsKey(member + "_ms")) {
                body.put(member, number(step.get(member + "_ms")) + "ms");
            }
        }
        return body;
    }

    /** Repeats a request until a server answers for good, and follows a server that names another one. */
    Answer persist(List<String> servers, String path, Map<String, Object> body) throws InterruptedException {
        String named = null;
        boolean unsure = false;
        for (int i = 0; i < 4 * servers.size(); i++) {
            String at = named != null ? named : servers.get(i % servers.size());
            try {
                Answer answer = post(at, path, body);
                switch (answer.problem()) {
                    case "misdirected" -> named = String.valueOf(answer.body.get("instance"));
                    case "come-again", "unavailable" -> Thread.sleep(50);
                    default -> {
                        // The release whose answer is missing was the one that released.
                        boolean released = unsure && path.equals("/v1/release") && answer.problem().equals("lost");
                        return released ? new Answer(200, answer.body, at) : answer;
                    }
                }
            } catch (IOException e) {
                unsure = true;
                named = null;
            }
        }
        return new Answer(503, Map.of("type", "/problems/unavailable"), "");
    }

    Answer release(Answer lease) throws InterruptedException {
        return persist(List.of(lease.at), "/v1/release", Map.of("handle", lease.body.get("handle")));
    }

    void once(Map<String, Object> step) throws Exception {
        Answer answer = persist(List.of(SERVER), "/v1/once", claim(step));
        expect(step, answer);
        if (answer.status != 200) {
            return;
        }
        boolean ran = !Boolean.TRUE.equals(answer.body.get("done"));
        verify(Boolean.valueOf(ran).equals(step.get("ran")), step, answer);
        if (ran) {
            var body = new LinkedHashMap<String, Object>(Map.of("handle", answer.body.get("handle")));
            if (step.get("work").equals("succeeds")) {
                body.put("done", answer.body.get("slot"));
            }
            verify(post(SERVER, "/v1/release", body).status == 200, step, "the release is refused");
        }
    }

    void line(Map<String, Object> step) throws Exception {
        String query = "/v1/line?key=" + URLEncoder.encode(key, StandardCharsets.UTF_8);
        long end = System.nanoTime() + 1_000_000 * number(step.getOrDefault("within_ms", 10_000));
        while (true) {
            var line = answer(HTTP.send(request(SERVER, query, null, 10), BodyHandlers.ofString()), SERVER).body;
            boolean same = true;
            for (String part : List.of("holders", "waiters")) {
                var owners = list(line.get(part)).stream().map(s -> map(s).get("owner")).toList();
                same &= owners.equals(step.get(part));
            }
            if (same) {
                return;
            }
            verify(System.nanoTime() < end, step, line);
            Thread.sleep(20);
        }
    }

    static Answer post(String at, String path, Map<String, Object> body) throws IOException, InterruptedException {
        return answer(HTTP.send(request(at, path, body, 60), BodyHandlers.ofString()), at);
    }

    static HttpRequest request(String at, String path, Map<String, Object> body, int seconds) {
        var request = HttpRequest.newBuilder(URI.create(at + path)).timeout(Duration.ofSeconds(seconds));
        if (body != null) {
            request.header("Content-Type", "application/json").POST(BodyPublishers.ofString(Json.write(body)));
        }
        return request.build();
    }

    static Answer answer(HttpResponse<String> response, String at) {
        return new Answer(response.statusCode(), map(Json.read(response.body())), at);
    }

    void expect(Map<String, Object> step, Answer answer) {
        verify(answer.problem().equals(step.getOrDefault("expect", "")), step, answer);
    }

    static void verify(boolean good, Map<String, Object> step, Object found) {
        if (!good) {
            throw new AssertionError(step + ": " + found);
        }
    }

    long token(Object name) {
        return Long.parseLong(String.valueOf(leases.get(name).body.get("token")));
    }

    static long number(Object value) {
        return ((Number) value).longValue();
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    /** Just enough of JSON: the JDK has none. */
    static final class Json {
        private final String text;
        private int at;

        private Json(String text) {
            this.text = text;
        }

        static Object read(String text) {
            return new Json(text).value();
        }

        static String write(Object value) {
            if (value instanceof Map<?, ?> object) {
                var members = new ArrayList<String>();
                object.forEach((name, member) -> members.add(write(name) + ":" + write(member)));
                return "{" + String.join(",", members) + "}";
            }
            if (!(value instanceof String string)) {
                return String.valueOf(value);
            }
            var out = new StringBuilder("\"");
            for (char c : string.toCharArray()) {
                out.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : c);
            }
            return out.append('"').toString();
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at);
        }

        private Object value() {
            return switch (next()) {
                case '{' -> object();
                case '[' -> array();
                case '"' -> string();
                default -> word();
            };
        }

        private Map<String, Object> object() {
            var object = new LinkedHashMap<String, Object>();
            for (at++; next() != '}'; ) {
                if (next() == ',') {
                    at++;
                    next();
                }
                String name = string();
                next();
                at++; // the colon
                object.put(name, value());
            }
            at++;
            return object;
        }

        private List<Object> array() {
            var array = new ArrayList<>();
            for (at++; next() != ']'; ) {
                if (next() == ',') {
                    at++;
                }
                array.add(value());
            }
            at++;
            return array;
        }

        private String string() {
            var out = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                if (text.charAt(at) != '\\') {
                    out.append(text.charAt(at));
                    continue;
                }
                char c = text.charAt(++at);
                int special = "bfnrt".indexOf(c);
                if (c == 'u') {
                    out.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    out.append(special < 0 ? c : "\b\f\n\r\t".charAt(special));
                }
            }
            at++;
            return out.toString();
        }

        private Object word() {
            int begin = at;
            while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            String word = text.substring(begin, at);
            return switch (word) {
                case "true" -> true;
                case "false" -> false;
                case "null" -> null;
                default -> word.matches("-?\\d+") ? (Object) Long.valueOf(word) : (Object) Double.valueOf(word);
            };
        }
    }
}
