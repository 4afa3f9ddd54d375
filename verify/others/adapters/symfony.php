<?php
// Adapter of Symfony Lock with RedisStore, or with PostgreSqlStore: php symfony.php NAME TTL_MS HOST:PORT.
require '/usr/share/php/Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\PostgreSqlStore;
use Symfony\Component\Lock\Store\RedisStore;

function say(string $text): void
{
    fwrite(STDOUT, str_replace("\n", ' ', $text)."\n");
}

[, $name, , $address] = $argv;
[$host, $port] = explode(':', $address);
$postgres = 'symfony-postgres' === $name;
// Where nothing has been configured, extensions are not loaded.
foreach ($postgres ? ['pdo', 'pdo_pgsql'] : ['igbinary', 'redis'] as $extension) {
    extension_loaded($extension) || dl($extension.'.so');
}
if ($postgres) {
    $connection = new PDO("pgsql:host=$host;port=$port;dbname=postgres", 'postgres', '', [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    $store = new PostgreSqlStore($connection);
} else {
    $redis = new Redis();
    $redis->connect($host, (int) $port);
    $store = new RedisStore($redis);
}
$factory = new LockFactory($store);
$changes = (string) file_get_contents('compress.zlib:///usr/share/doc/php-symfony-lock/changelog.Debian.gz', length: 80);
say('ready '.strtok(substr($changes, strpos($changes, '(') + 1), ')'));
$lock = null;
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        if ('unlock' === $words[0]) {
            $had = $lock->isAcquired();
            $lock->release();
            say($had ? 'released' : 'lost');
            continue;
        }
        $lock = $factory->createLock($words[1], (int) $words[2] / 1000);
        if (isset($words[3])) { // it has no way to wait for a time, so this asks once more
            $held = $lock->acquire() || (usleep(1000 * (int) $words[3]) ?? $lock->acquire());
        } else {
            $held = $lock->acquire(true);
        }
        say($held ? 'held' : 'refused');
    } catch (Throwable $e) {
        say('error '.get_class($e).' '.$e->getMessage());
    }
}
