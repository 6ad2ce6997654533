import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** A process with Curator's InterProcessMutex. See party.go for its task, its orders, and the events that it reports. */
public final class CuratorParty {
    private final CuratorFramework client;
    private final InterProcessMutex mutex;
    private volatile int losses; // changed only by the listener

    private CuratorParty(String task) throws Exception {
        int lease = (int) TimeUnit.NANOSECONDS.toMillis(Long.parseLong(field(task, "Lease")));
        client = CuratorFrameworkFactory.newClient(
                field(task, "Servers"), lease, lease, new ExponentialBackoffRetry(1000, 3));
        client.getConnectionStateListenable().addListener((c, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                losses++;
            }
        });
        client.start();
        client.blockUntilConnected();
        mutex = new InterProcessMutex(client, field(task, "Path"));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        CuratorParty party = new CuratorParty(in.readLine());
        say("ready", System.nanoTime(), "Version", version());
        ExecutorService turns = Executors.newSingleThreadExecutor(); // one thread, because the mutex belongs to the thread that acquires it
        CountDownLatch leave = null;
        for (String order = in.readLine(); order != null; order = in.readLine()) {
            if (order.equals("acquire")) {
                CountDownLatch own = leave = new CountDownLatch(1);
                turns.submit(() -> party.takeTurn(own));
            } else {
                leave.countDown();
            }
        }
        System.exit(0);
    }

    private static String version() throws IOException {
        Properties artifact = new Properties();
        artifact.load(CuratorFramework.class.getResourceAsStream("/META-INF/maven/org.apache.curator/curator-framework/pom.properties"));
        return artifact.getProperty("version");
    }

    private Void takeTurn(CountDownLatch leave) throws InterruptedException {
        while (true) {
            try {
                mutex.acquire();
                break;
            } catch (Exception e) {
                say("failed", System.nanoTime(), "Why", e);
            }
            Thread.sleep(200);
        }
        int before = losses;
        say("held", System.nanoTime(), "Why", "");
        say("over", believe(before, leave), "Why", "");
        Object why = "";
        try {
            mutex.release();
        } catch (Exception e) {
            why = e;
        }
        say("released", System.nanoTime(), "Why", why);
        return null;
    }

    /** Checks the connection every millisecond. Returns the time of the last check that found it undisturbed. */
    private long believe(int before, CountDownLatch leave) throws InterruptedException {
        long believed = 0;
        while (true) {
            long look = System.nanoTime();
            if (!client.getZookeeperClient().isConnected() || losses != before) {
                return believed;
            }
            believed = look;
            if (leave.await(1, TimeUnit.MILLISECONDS)) {
                return believed;
            }
        }
    }

    private static synchronized void say(String what, long at, String name, Object value) {
        System.out.printf("{\"What\":\"%s\",\"At\":%d,\"%s\":\"%s\"}%n",
                what, at, name, value.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " "));
    }

    /** Reads a number, a string without escapes, or the only string of an array. */
    private static String field(String task, String name) {
        Matcher m = Pattern.compile("\"" + name + "\":\\[?\"?([^\",\\]}]*)").matcher(task);
        m.find();
        return m.group(1);
    }
}
