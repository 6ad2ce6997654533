import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** A Curator lock that obeys orders on its standard input. For the orders and the answers, see driver_test.go. */
public final class CuratorDriver {
    private final CuratorFramework client;
    private final Supplier<Contender> newContender;
    private final Contender contender;

    private CuratorDriver(CuratorFramework client, Supplier<Contender> newContender) {
        this.client = client;
        this.newContender = newContender;
        this.contender = newContender.get();
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0], path = args[1], kind = args[3];
        int sessionMillis = Integer.parseInt(args[2]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                servers, sessionMillis, sessionMillis, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        CuratorDriver driver = new CuratorDriver(client, contenders(client, path, kind));
        answer("\"Session\":%d", client.getZookeeperClient().getZooKeeper().getSessionId());

        // One thread executes all orders, because a lock of Curator belongs to the thread that acquired it.
        ExecutorService worker = Executors.newSingleThreadExecutor();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] order = line.split(" ");
            worker.execute(() -> driver.obey(order));
        }
        client.close();
        System.exit(0);
    }

    private static Supplier<Contender> contenders(CuratorFramework client, String path, String kind) {
        InterProcessReadWriteLock sides = new InterProcessReadWriteLock(client, path);
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        return switch (kind) {
            case "curator" -> () -> new Simple(mutex);
            case "curator-write", "curator-rw" -> () -> new Sides(sides, Integer.MAX_VALUE);
            case "curator-read" -> () -> new Sides(sides, 1);
            case "curator-semaphore-mutex" -> () -> new Simple(new InterProcessSemaphoreMutex(client, path));
            case "curator-revocable" -> () -> new Revocable(mutex);
            case "curator-leader" -> () -> new Leadership(client, path);
            default -> {
                int permits = Integer.parseInt(kind.replaceFirst("^curator-semaphore-", ""));
                yield () -> new Permits(new InterProcessSemaphoreV2(client, path, permits));
            }
        };
    }

    private void obey(String[] order) {
        try {
            switch (order[0]) {
                case "acquire" -> {
                    long millis = order.length > 1 ? Long.parseLong(order[1]) : 0;
                    int units = order.length > 2 ? Integer.parseInt(order[2]) : 0;
                    answer("\"TimedOut\":%b", !contender.acquire(units, millis));
                }
                case "downgrade" -> {
                    contender.downgrade();
                    answer("");
                }
                case "release" -> {
                    contender.release();
                    answer("");
                }
                case "yield" -> {
                    ((Revocable) contender).yield();
                    answer("");
                }
                case "revoke" -> {
                    Revoker.attemptRevoke(client, order[1]);
                    answer("");
                }
                case "leader" -> answer("\"Leader\":\"%s\"", ((Leadership) contender).selector.getLeader().getId());
                case "contend" -> contend(order);
                default -> throw new IllegalArgumentException(order[0]);
            }
        } catch (Exception e) {
            answer("\"Error\":\"%s\"", e.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " "));
        }
    }

    /** Makes each thread take turns for a while. Each thread takes at least one turn. */
    private void contend(String[] order) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Long.parseLong(order[1]));
        int threads = Integer.parseInt(order[2]);
        int[][] turns = Arrays.stream(order).skip(6).map(CuratorDriver::turn).toArray(int[][]::new);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try (Oracle oracle = Oracle.open(order[4], Long.parseLong(order[3]), Long.parseLong(order[5]))) {
            List<Future<Tally>> results = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                int first = i;
                results.add(pool.submit(() -> takeTurns(oracle, end, turns, first)));
            }
            Tally sum = new Tally();
            long fewest = Long.MAX_VALUE;
            for (Future<Tally> result : results) {
                Tally tally = result.get();
                sum.turns += tally.turns;
                sum.alone += tally.alone;
                sum.overlaps += tally.overlaps;
                fewest = Math.min(fewest, tally.turns);
            }
            answer("\"Turns\":%d,\"Alone\":%d,\"Fewest\":%d,\"Overlaps\":%d", sum.turns, sum.alone, fewest, sum.overlaps);
        } finally {
            pool.shutdown();
        }
    }

    private static int[] turn(String units) {
        return Arrays.stream(units.split(">")).mapToInt(Integer::parseInt).toArray();
    }

    private Tally takeTurns(Oracle oracle, long end, int[][] turns, int first) throws Exception {
        Tally tally = new Tally();
        Contender contender = newContender.get();
        for (int i = first; tally.turns == 0 || System.nanoTime() < end; i++) {
            int[] units = turns[i % turns.length];
            contender.acquire(units[0], 0);
            boolean overlap = oracle.enter(units[0]);
            try {
                overlap |= oracle.stay(units[0]);
                for (int j = 1; j < units.length; j++) {
                    oracle.leave(units[j - 1] - units[j]);
                    contender.downgrade();
                    overlap |= oracle.stay(units[j]);
                }
            } finally {
                oracle.leave(units[units.length - 1]);
                contender.release();
            }
            tally.turns++;
            if (oracle.alone(units[0])) {
                tally.alone++;
            }
            if (overlap) {
                tally.overlaps++;
            }
        }
        return tally;
    }

    private static final class Tally {
        private long turns, alone, overlaps;
    }

    private static synchronized void answer(String format, Object... args) {
        System.out.println("{" + String.format(format, args) + "}");
    }

    /** A contender of one thread for units of a lock. If units is 0, it takes its default number. */
    private interface Contender {
        /** Waits for the units, at most millis if that is not 0. Returns whether it has got them. */
        boolean acquire(int units, long millis) throws Exception;

        void release() throws Exception;

        /** Turns a writer into a reader. */
        default void downgrade() throws Exception {
            throw new UnsupportedOperationException();
        }
    }

    private static boolean acquire(InterProcessLock lock, long millis) throws Exception {
        if (millis > 0) {
            return lock.acquire(millis, TimeUnit.MILLISECONDS);
        }
        lock.acquire();
        return true;
    }

    private record Simple(InterProcessLock lock) implements Contender {
        @Override
        public boolean acquire(int units, long millis) throws Exception {
            return CuratorDriver.acquire(lock, millis);
        }

        @Override
        public void release() throws Exception {
            lock.release();
        }
    }

    /** The two sides of a reader/writer lock. A reader takes one unit. */
    private static final class Sides implements Contender {
        private final InterProcessReadWriteLock sides;
        private final int usual;
        private InterProcessLock held;

        Sides(InterProcessReadWriteLock sides, int usual) {
            this.sides = sides;
            this.usual = usual;
        }

        @Override
        public boolean acquire(int units, long millis) throws Exception {
            held = (units == 0 ? usual : units) == 1 ? sides.readLock() : sides.writeLock();
            return CuratorDriver.acquire(held, millis);
        }

        @Override
        public void downgrade() throws Exception {
            sides.readLock().acquire();
            held.release();
            held = sides.readLock();
        }

        @Override
        public void release() throws Exception {
            held.release();
        }
    }

    private static final class Permits implements Contender {
        private final InterProcessSemaphoreV2 semaphore;
        private Collection<Lease> leases;

        Permits(InterProcessSemaphoreV2 semaphore) {
            this.semaphore = semaphore;
        }

        @Override
        public boolean acquire(int units, long millis) throws Exception {
            int count = Math.max(units, 1);
            leases = millis == 0 ? semaphore.acquire(count) : semaphore.acquire(count, millis, TimeUnit.MILLISECONDS);
            return leases != null;
        }

        @Override
        public void release() {
            semaphore.returnAll(leases);
        }
    }

    /** A mutex that its holder releases when another process asks for it. */
    private static final class Revocable implements Contender {
        private final InterProcessMutex mutex;
        private final Semaphore asked = new Semaphore(0);

        Revocable(InterProcessMutex mutex) {
            this.mutex = mutex;
        }

        @Override
        public boolean acquire(int units, long millis) throws Exception {
            mutex.makeRevocable(held -> asked.release()); // ends with the next release
            return CuratorDriver.acquire(mutex, millis);
        }

        @Override
        public void release() throws Exception {
            mutex.release();
        }

        void yield() throws Exception {
            asked.acquire();
            mutex.release();
        }
    }

    /** Leadership in an election, used as a lock: the process leads while a thread has the lock. */
    private static final class Leadership extends LeaderSelectorListenerAdapter implements Contender {
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
        public boolean acquire(int units, long millis) throws Exception {
            if (!started) {
                started = true;
                selector.start();
            } else {
                while (!selector.requeue()) { // the selector has not finished its resignation
                    Thread.sleep(1);
                }
            }
            begun.acquire();
            return true;
        }

        @Override
        public void release() {
            end.release();
        }
    }

    /**
     * Counts in a file how many units of a lock are taken; a lock of the kernel protects the count. The file also contains
     * a counter that only a holder of all units changes. See oracle_test.go. Without a file, nothing is checked.
     */
    private static final class Oracle implements AutoCloseable {
        private static final int COUNTER = 0, TAKEN = 8, MOST = 16;
        private final FileChannel file;
        private final long millis, all;

        private Oracle(FileChannel file, long millis, long all) {
            this.file = file;
            this.millis = millis;
            this.all = all;
        }

        // The file is opened once, because closing any of its descriptors drops all locks of the process on it.
        static Oracle open(String name, long millis, long all) throws IOException {
            FileChannel file = name.equals("-") ? null
                    : FileChannel.open(Path.of(name), StandardOpenOption.READ, StandardOpenOption.WRITE);
            return new Oracle(file, millis, all);
        }

        boolean alone(long units) {
            return units == all;
        }

        /** Takes units. Returns whether more units are taken than there are. */
        boolean enter(long units) throws IOException {
            return take(units) > all;
        }

        void leave(long units) throws IOException {
            take(-units);
        }

        /** Waits for the time of a critical section. Returns whether the counter shows another holder. */
        boolean stay(long units) throws Exception {
            long before = file == null ? 0 : get(COUNTER);
            Thread.sleep(millis);
            if (file == null) {
                return false;
            }
            if (!alone(units)) {
                return get(COUNTER) != before;
            }
            put(COUNTER, before + 1);
            return false;
        }

        private synchronized long take(long units) throws IOException {
            if (file == null) {
                return 0;
            }
            FileLock mine = file.lock();
            try {
                long taken = get(TAKEN) + units;
                put(TAKEN, taken);
                if (!alone(units)) {
                    put(MOST, Math.max(get(MOST), taken));
                }
                return taken;
            } finally {
                mine.release();
            }
        }

        private long get(int offset) throws IOException {
            ByteBuffer value = ByteBuffer.allocate(Long.BYTES);
            file.read(value, offset);
            return value.getLong(0);
        }

        private void put(int offset, long value) throws IOException {
            file.write(ByteBuffer.allocate(Long.BYTES).putLong(0, value), offset);
        }

        @Override
        public void close() throws IOException {
            if (file != null) {
                file.close();
            }
        }
    }
}
