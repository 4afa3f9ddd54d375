<?php
// Plays ../conformance/cases.json over plain HTTP by php-curl; its README.md has the steps.
// It is also an example of how a PHP program speaks to fencelock serve without a client.

declare(strict_types=1);

$server = (string) getenv('CONFORMANCE_SERVER');
$faults = (string) getenv('CONFORMANCE_FAULTS');

/** What a server answered; status 0 if it did not. */
final class Answer
{
    public function __construct(public int $status, public array $body, public string $at)
    {
    }

    public function problem(): string
    {
        return $this->status === 200 ? '' : basename($this->body['type'] ?? 'unavailable');
    }
}

function handle(string $at, string $path, ?array $body): CurlHandle
{
    $curl = curl_init($at . $path);
    curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 60, CURLOPT_FORBID_REUSE => true]);
    if ($body !== null) {
        curl_setopt($curl, CURLOPT_POSTFIELDS, json_encode((object) $body, JSON_THROW_ON_ERROR));
        curl_setopt($curl, CURLOPT_HTTPHEADER, ['Content-Type: application/json']);
    }
    return $curl;
}

function answer(CurlHandle $curl, string|bool|null $text, string $at): Answer
{
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    return new Answer($status, json_decode((string) $text, true) ?? [], $at);
}

function send(string $at, string $path, ?array $body = null): Answer
{
    $curl = handle($at, $path, $body);
    return answer($curl, curl_exec($curl), $at);
}

/** Repeats a request until a server answers for good, and follows a server that names another one. */
function persist(array $servers, string $path, array $body): Answer
{
    $named = null;
    $unsure = false;
    for ($i = 0; $i < 4 * count($servers); $i++) {
        $answer = send($named ?? $servers[$i % count($servers)], $path, $body);
        if ($answer->status === 0) {
            $unsure = true;
            $named = null;
        } elseif ($answer->problem() === 'misdirected') {
            $named = $answer->body['instance'];
        } elseif (in_array($answer->problem(), ['come-again', 'unavailable'], true)) {
            usleep(50_000);
        } elseif ($unsure && $path === '/v1/release' && $answer->problem() === 'lost') {
            return new Answer(200, [], $answer->at); // the release whose answer is missing released
        } else {
            return $answer;
        }
    }
    return new Answer(503, ['type' => '/problems/unavailable'], '');
}

/** Plays one case. */
final class Player
{
    private array $leases = [];
    private array $started = [];

    public function __construct(private string $server, private string $faults, private string $key)
    {
    }

    public function play(array $steps): void
    {
        try {
            foreach ($steps as $step) {
                $verb = 'step' . $step['do'];
                $answer = $this->$verb($step);
                if ($answer instanceof Answer) {
                    $this->expect($step, $answer);
                }
            }
        } finally {
            foreach ($this->leases as $lease) {
                $this->release($lease);
            }
        }
    }

    private function expect(array $step, Answer $answer): void
    {
        $this->verify($answer->problem() === ($step['expect'] ?? ''), $step, $answer);
        foreach ($step['holder'] ?? [] as $member => $value) {
            $this->verify($answer->body['holders'][0][$member] === $value, $step, $answer);
        }
    }

    private function verify(bool $good, array $step, mixed $found): void
    {
        if (!$good) {
            throw new RuntimeException(json_encode($step) . ': ' . json_encode($found));
        }
    }

    private function claim(array $step): array
    {
        $members = ['kind', 'permits', 'size', 'owner', 'note', 'request_id', 'slot'];
        $body = array_intersect_key($step, array_flip($members));
        foreach (['ttl', 'wait'] as $member) {
            if (isset($step["{$member}_ms"])) {
                $body[$member] = $step["{$member}_ms"] . 'ms';
            }
        }
        return $body + ['key' => $this->key, 'request_id' => bin2hex(random_bytes(16))];
    }

    private function keep(array $step, Answer $answer): Answer
    {
        if ($answer->status === 200) {
            $this->leases[$step['lease']] = $answer;
        }
        return $answer;
    }

    private function release(Answer $lease): Answer
    {
        return persist([$lease->at], '/v1/release', ['handle' => $lease->body['handle']]);
    }

    private function stepAcquire(array $step): Answer
    {
        $at = fn (string $name) => $name === 'server' ? $this->server : "$this->faults/$name";
        $servers = array_map($at, $step['through'] ?? ['server']);
        return $this->keep($step, persist($servers, '/v1/acquire', $this->claim($step)));
    }

    private function stepStart(array $step): void
    {
        $claim = $this->claim($step);
        $curl = handle($this->server, '/v1/acquire', $claim);
        $multi = curl_multi_init();
        curl_multi_add_handle($multi, $curl);
        $this->started[$step['lease']] = [$multi, $curl, $claim];
    }

    /** Lets the requests in the background go on. */
    private function advance(): int
    {
        $running = 0;
        foreach ($this->started as [$multi]) {
            curl_multi_exec($multi, $one);
            $running += $one;
        }
        return $running;
    }

    private function stepFinish(array $step): Answer
    {
        [$multi, $curl] = $this->started[$step['lease']];
        for (curl_multi_exec($multi, $running); $running > 0; curl_multi_exec($multi, $running)) {
            curl_multi_select($multi, 0.05);
            $this->advance();
        }
        unset($this->started[$step['lease']]);
        return $this->keep($step, answer($curl, curl_multi_getcontent($curl), $this->server));
    }

    private function stepCancel(array $step): void
    {
        [$multi, $curl, $claim] = $this->started[$step['lease']];
        unset($this->started[$step['lease']]);
        curl_multi_remove_handle($multi, $curl);
        curl_multi_close($multi);
        send($this->server, '/v1/leave', ['key' => $this->key, 'request_id' => $claim['request_id']]);
    }

    private function stepLine(array $step): void
    {
        $end = hrtime(true) + 1_000_000 * ($step['within_ms'] ?? 10_000);
        do {
            $this->advance();
            $line = send($this->server, '/v1/line?key=' . rawurlencode($this->key))->body;
            $holders = array_column($line['holders'], 'owner');
            $waiters = array_column($line['waiters'], 'owner');
            if ($holders === $step['holders'] && $waiters === $step['waiters']) {
                return;
            }
            usleep(20_000);
        } while (hrtime(true) < $end);
        $this->verify(false, $step, $line);
    }

    private function stepCheck(array $step): Answer
    {
        $lease = $this->leases[$step['lease']];
        return send($lease->at, '/v1/check', ['handle' => $lease->body['handle']]);
    }

    private function stepRelease(array $step): Answer
    {
        return $this->release($this->leases[$step['lease']]);
    }

    private function stepBreak(array $step): Answer
    {
        $token = $this->leases[$step['lease']]->body['token'];
        return send($this->server, '/v1/break', ['key' => $this->key, 'token' => $token, 'reason' => $step['reason']]);
    }

    private function stepRises(array $step): void
    {
        $tokens = array_map(fn ($name) => (int) $this->leases[$name]->body['token'], $step['leases']);
        for ($i = 1; $i < count($tokens); $i++) {
            $this->verify($tokens[$i - 1] < $tokens[$i], $step, $tokens);
        }
    }

    private function stepSame(array $step): void
    {
        foreach (['handle', 'token'] as $member) {
            $seen = array_unique(array_map(fn ($name) => $this->leases[$name]->body[$member], $step['leases']));
            $this->verify(count($seen) === 1, $step, $seen);
        }
    }

    private function stepOnce(array $step): Answer
    {
        $answer = persist([$this->server], '/v1/once', $this->claim($step));
        if ($answer->status !== 200) {
            return $answer;
        }
        $ran = !($answer->body['done'] ?? false);
        $this->verify($ran === $step['ran'], $step, $answer);
        if (!$ran) {
            return $answer;
        }
        $done = $step['work'] === 'succeeds' ? ['done' => $answer->body['slot']] : [];
        return send($this->server, '/v1/release', ['handle' => $answer->body['handle']] + $done);
    }

    private function stepPost(array $step): void
    {
        $fill = fn ($value) => match (true) {
            $value === '$k' => $this->key,
            is_string($value) && str_starts_with($value, '$') => $this->leases[substr($value, 1)]->body['handle'],
            default => $value,
        };
        $answer = send($this->server, $step['path'], array_map($fill, $step['body']));
        $this->verify($answer->status === $step['status'], $step, $answer);
        $this->verify($answer->problem() === ($step['problem'] ?? ''), $step, $answer);
    }
}

$failed = false;
$file = (string) file_get_contents((string) getenv('CONFORMANCE_CASES'));
foreach (json_decode($file, true, flags: JSON_THROW_ON_ERROR)['cases'] as $number => $case) {
    if (in_array('renewal', $case['needs'] ?? [], true)) {
        continue;
    }
    try {
        foreach ($case['each_key'] ?? ['k'] as $i => $key) {
            (new Player($server, $faults, "php/$number/$i/$key"))->play($case['steps']);
        }
        echo "played php: {$case['name']}\n";
    } catch (Throwable $error) {
        $failed = true;
        echo "FAILED php: {$case['name']}: $error\n";
    }
}
exit($failed ? 1 : 0);
