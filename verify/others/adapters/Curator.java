// Adapter of Curator's InterProcessMutex: java Curator.java NAME TTL_MS HOST:PORT.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

class Curator {
    static volatile boolean holds;

    static synchronized void say(String text) {
        System.out.println(text.replace("\n", " "));
    }

    /** The version is in the name of the archive. */
    static String version() {
        for (String name : new File("/usr/share/java").list()) {
            if (name.matches("curator-recipes-[0-9.]+[.]jar")) return name.replaceAll("[^0-9.]|[.]jar", "");
        }
        return "unknown";
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            args[2], Integer.parseInt(args[1]), 15_000, new ExponentialBackoffRetry(1000, 3));
        // The documentation wants a listener beside each lock.
        client.getConnectionStateListenable().addListener((c, state) -> {
            if (holds && state == ConnectionState.SUSPENDED) say("doubt the connection is suspended");
            if (holds && state == ConnectionState.LOST) say("told that the session is lost");
        });
        client.start();
        client.blockUntilConnected();
        say("ready " + version());
        InterProcessMutex mutex = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                if (words[0].equals("unlock")) {
                    holds = false;
                    mutex.release();
                    say("released");
                    continue;
                }
                mutex = new InterProcessMutex(client, "/locks/" + words[1]);
                if (words.length < 4) mutex.acquire();
                holds = words.length < 4 || mutex.acquire(Long.parseLong(words[3]), TimeUnit.MILLISECONDS);
                say(holds ? "held" : "refused");
            } catch (Exception e) {
                say("error " + e);
            }
        }
        System.exit(0);
    }
}
