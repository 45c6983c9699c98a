package turnlock.interop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A Java thread that runs its tasks in order. In Redisson, a thread is the owner of a lock. */
final class Worker {
    private final BlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
    private final Thread thread;

    Worker(String name) {
        thread = new Thread(this::loop, name);
        thread.setDaemon(true);
        thread.start();
    }

    void run(Runnable task) {
        tasks.add(task);
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
                tasks.take().run();
            } catch (InterruptedException late) {
                // The interrupt was for a call that had just ended.
            }
        }
    }
}
