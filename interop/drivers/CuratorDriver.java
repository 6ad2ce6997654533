import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** A Curator lock at the command of its standard input; see driver_test.go for the orders and the answers. */
public final class CuratorDriver {
    private final InterProcessLock lock;

    private CuratorDriver(InterProcessLock lock) {
        this.lock = lock;
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0], path = args[1], kind = args[3];
        int sessionMillis = Integer.parseInt(args[2]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                servers, sessionMillis, sessionMillis, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        CuratorDriver driver = new CuratorDriver(newLock(client, path, kind));
        answer("\"Session\":%d", client.getZookeeperClient().getZooKeeper().getSessionId());

        // One thread for all orders: the locks of Curator belong to the thread that acquired them.
        ExecutorService worker = Executors.newSingleThreadExecutor();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] order = line.split(" ");
            worker.execute(() -> driver.obey(order));
        }
        client.close();
        System.exit(0);
    }

    private static InterProcessLock newLock(CuratorFramework client, String path, String kind) {
        return switch (kind) {
            case "curator" -> new InterProcessMutex(client, path);
            case "curator-write" -> new InterProcessReadWriteLock(client, path).writeLock();
            case "curator-read" -> new InterProcessReadWriteLock(client, path).readLock();
            case "curator-leader" -> new Leadership(client, path);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private void obey(String[] order) {
        try {
            switch (order[0]) {
                case "acquire" -> answer("\"TimedOut\":%b", !acquire(order));
                case "release" -> {
                    lock.release();
                    answer("");
                }
                case "leader" -> answer("\"Leader\":\"%s\"", ((Leadership) lock).selector.getLeader().getId());
                case "contend" -> contend(Long.parseLong(order[1]), Integer.parseInt(order[2]), order[3]);
                default -> throw new IllegalArgumentException(order[0]);
            }
        } catch (Exception e) {
            answer("\"Error\":\"%s\"", e.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " "));
        }
    }

    private boolean acquire(String[] order) throws Exception {
        if (order.length > 1) {
            return lock.acquire(Long.parseLong(order[1]), TimeUnit.MILLISECONDS);
        }
        lock.acquire();
        return true;
    }

    /** Lets each of some threads take turns for a while. */
    private void contend(long millis, int threads, String file) throws Exception {
        AtomicLong overlaps = new AtomicLong();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try (Oracle oracle = new Oracle(file)) {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
            List<Future<Long>> results = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                results.add(pool.submit(() -> takeTurns(oracle, end, overlaps)));
            }
            long turns = 0, fewest = Long.MAX_VALUE;
            for (Future<Long> result : results) {
                turns += result.get();
                fewest = Math.min(fewest, result.get());
            }
            answer("\"Turns\":%d,\"Fewest\":%d,\"Overlaps\":%d", turns, fewest, overlaps.get());
        } finally {
            pool.shutdown();
        }
    }

    private long takeTurns(Oracle oracle, long end, AtomicLong overlaps) throws Exception {
        long turns = 0;
        for (; System.nanoTime() < end; turns++) {
            lock.acquire();
            try {
                if (oracle.visit()) {
                    overlaps.incrementAndGet();
                }
            } finally {
                lock.release();
            }
        }
        return turns;
    }

    private static synchronized void answer(String format, Object... args) {
        System.out.println("{" + String.format(format, args) + "}");
    }

    /** Leads while somebody has it as a lock. */
    private static final class Leadership extends LeaderSelectorListenerAdapter implements InterProcessLock {
        private final LeaderSelector selector;
        private final Semaphore begun = new Semaphore(0), end = new Semaphore(0);
        private boolean started;

        Leadership(CuratorFramework client, String path) {
            selector = new LeaderSelector(client, path, this);
            selector.setId("curator");
        }

        @Override
        public void takeLeadership(CuratorFramework client) throws Exception {
            begun.release();
            end.acquire();
        }

        @Override
        public void acquire() throws Exception {
            if (!started) {
                started = true;
                selector.start();
            } else {
                while (!selector.requeue()) { // it still resigns
                    Thread.sleep(1);
                }
            }
            begun.acquire();
        }

        @Override
        public boolean acquire(long time, TimeUnit unit) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void release() {
            end.release();
        }

        @Override
        public boolean isAcquiredInThisProcess() {
            return selector.hasLeadership();
        }
    }

    /**
     * A counter in a file that only the lock under test protects, and a POSIX lock that tells whether it does. POSIX
     * locks belong to the process, which Java makes up for with an exception.
     */
    private static final class Oracle implements AutoCloseable {
        private final FileChannel file;

        // Opened once: closing any descriptor of a file drops the locks of the process on it.
        Oracle(String name) throws IOException {
            file = FileChannel.open(Path.of(name), StandardOpenOption.READ, StandardOpenOption.WRITE);
        }

        /** Goes through one critical section and reports whether somebody else was inside. */
        boolean visit() throws Exception {
            FileLock mine = tryLock();
            ByteBuffer counter = ByteBuffer.allocate(Long.BYTES);
            file.read(counter, 0);
            long turns = counter.getLong(0);
            Thread.sleep(1);
            file.write(counter.clear().putLong(0, turns + 1), 0);
            if (mine != null) {
                mine.release();
            }
            return mine == null;
        }

        private FileLock tryLock() throws IOException {
            try {
                return file.tryLock();
            } catch (OverlappingFileLockException e) {
                return null;
            }
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }
}
