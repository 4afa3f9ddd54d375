#!/bin/sh
# Plays a part of ../conformance/cases.json with curl, written out: sh has no JSON. It is also
# an example of how a shell script speaks to fencelock serve without the command.
set -eu
server=$CONFORMANCE_SERVER

# post PATH JSON sends a request, and sets $status and $body.
post() {
	body=$(curl --silent --show-error --max-time 60 --header 'Content-Type: application/json' \
		--data "$2" --write-out '\n%{http_code}' "$server$1")
	status=${body##*
}
}

# member NAME prints a member of $body: its text or number.
member() {
	printf '%s' "$body" | sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" | head -n 1
}

# want STATUS [PROBLEM] ends the script unless that was the answer.
want() {
	case $body in
	*"/problems/${2-}\""*) ;;
	*) [ -z "${2-}" ] || fail "$2" ;;
	esac
	[ "$status" = "$1" ] || fail "$1"
}

fail() {
	echo "FAILED sh: $case: want $1, got: $body" >&2
	exit 1
}

owners() { # PART OWNER...: the owners of the holders or waiters
	body=$(curl --silent --show-error --get --data-urlencode "key=$key" "$server/v1/line")
	part=$(printf '%s' "$body" | tr -d '\n ' | sed "s/.*\"$1\":\[\([^]]*\)\].*/\1/" | tr '{' '\n' |
		sed -n 's/.*"owner":"\([^"]*\)".*/\1/p' | tr '\n' ' ' | sed 's/ *$//')
	shift
	[ "$part" = "$*" ] || fail "$*"
}

case='a free key is acquired and released' key=sh/1
post /v1/acquire '{"key":"sh/1","owner":"alice","note":"first"}'
want 200
a=$(member handle)
owners holders alice
owners waiters
post /v1/check "{\"handle\":\"$a\"}"
want 200
post /v1/release "{\"handle\":\"$a\"}"
want 200
post /v1/check "{\"handle\":\"$a\"}"
want 410 lost
owners holders
echo "played sh: $case"

case='a refusal names the holder' key=sh/2
post /v1/acquire '{"key":"sh/2","owner":"alice","note":"rebuild the index"}'
want 200
a=$(member handle)
post /v1/acquire '{"key":"sh/2","owner":"bob"}'
want 409 not-acquired
case $body in *'"alice"'*'rebuild the index'*) ;; *) fail 'the holder' ;; esac
owners holders alice
post /v1/release "{\"handle\":\"$a\"}"
want 200
post /v1/acquire '{"key":"sh/2","owner":"bob"}'
want 200
post /v1/release "{\"handle\":\"$(member handle)\"}"
want 200
echo "played sh: $case"

case='a wait that ends is a refusal and leaves the line' key=sh/3
post /v1/acquire '{"key":"sh/3","owner":"alice"}'
want 200
a=$(member handle)
post /v1/acquire '{"key":"sh/3","owner":"bob","wait":"300ms"}'
want 409 not-acquired
owners holders alice
owners waiters
post /v1/release "{\"handle\":\"$a\"}"
want 200
echo "played sh: $case"

case='a repeated request id is the same claim' key=sh/4
post /v1/acquire '{"key":"sh/4","owner":"alice","request_id":"conformance-1"}'
want 200
a=$(member handle) token=$(member token)
post /v1/acquire '{"key":"sh/4","owner":"alice","request_id":"conformance-1"}'
want 200
[ "$(member handle)" = "$a" ] || fail "the handle $a"
[ "$(member token)" = "$token" ] || fail "the token $token"
owners holders alice
post /v1/acquire '{"key":"sh/4","owner":"alice","request_id":"conformance-2"}'
want 409 not-acquired
post /v1/release "{\"handle\":\"$a\"}"
want 200
owners holders
echo "played sh: $case"

case='a broken lease is gone for whoever asks' key=sh/5
post /v1/acquire '{"key":"sh/5"}'
want 200
a=$(member handle) token=$(member token)
post /v1/break "{\"key\":\"sh/5\",\"token\":\"$token\",\"reason\":\"test\"}"
want 200
post /v1/check "{\"handle\":\"$a\"}"
want 410 lost
post /v1/renew "{\"handle\":\"$a\"}"
want 410 lost
post /v1/break "{\"key\":\"sh/5\",\"token\":\"$token\",\"reason\":\"test\"}"
want 404 no-claim
echo "played sh: $case"

case='a key in use is of one kind' key=sh/6
post /v1/acquire '{"key":"sh/6"}'
want 200
a=$(member handle)
post /v1/acquire '{"key":"sh/6","kind":"permits","permits":1,"size":3}'
want 409 wrong-kind
post /v1/release "{\"handle\":\"$a\"}"
want 200
post /v1/acquire '{"key":"sh/6","kind":"permits","permits":1,"size":3}'
want 200
a=$(member handle)
post /v1/acquire '{"key":"sh/6"}'
want 409 wrong-kind
post /v1/release "{\"handle\":\"$a\"}"
want 200
echo "played sh: $case"

case='a handle that nobody gave is refused' key=sh/7
post /v1/renew '{"handle":"nonsense"}'
want 400 invalid-handle
post /v1/check '{"handle":""}'
want 400 invalid-handle
post /v1/acquire '{"key":"sh/7"}'
want 200
a=$(member handle)
post /v1/release "{\"handle\":\"$a\"}"
want 200
post /v1/release "{\"handle\":\"$a\"}"
want 410 lost
post /v1/renew "{\"handle\":\"$a\"}"
want 410 lost
echo "played sh: $case"
