package turnlock.interop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A Java thread that runs what it is given, one thing after the other: the owner of locks in Redisson. */
final class Worker {
    private final BlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
    private final Thread thread;

    Worker(String name) {
        thread = new Thread(this::loop, name);
        thread.setDaemon(true);
        thread.start();
    }

    void run(Runnable task) {
        work.add(task);
    }

    long id() {
        return thread.getId();
    }

    void interrupt() {
        thread.interrupt();
    }

    private void loop() {
        while (true) {
            try {
                work.take().run();
            } catch (InterruptedException late) {
                // The interrupt was meant for a call that had just ended.
            }
        }
    }
}
