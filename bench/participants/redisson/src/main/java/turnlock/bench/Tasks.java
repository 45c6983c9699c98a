package turnlock.bench;

import java.util.ArrayList;
import java.util.List;

/** Java threads, one for each task. */
final class Tasks {
    /** Small, so that a thousand threads fit. */
    private static final long STACK_BYTES = 256 * 1024;

    private final List<Thread> threads = new ArrayList<>();

    private Tasks() {}

    /** The body of a task. An exception is counted as an error, and ends the task. */
    interface Body {
        void run(int task) throws Exception;
    }

    static Tasks start(int count, Tally tally, Body body) {
        Tasks tasks = new Tasks();
        for (int task = 0; task < count; task++) {
            int number = task;
            Runnable runnable = () -> {
                try {
                    body.run(number);
                } catch (Exception error) {
                    tally.error(error.toString());
                }
            };
            Thread thread = new Thread(null, runnable, "task-" + task, STACK_BYTES);
            thread.setDaemon(true);
            tasks.threads.add(thread);
        }
        tasks.threads.forEach(Thread::start);
        return tasks;
    }

    void join() throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** Waits for at most {@code seconds}. Returns the number of unfinished tasks. */
    long join(long seconds) throws InterruptedException {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        for (Thread thread : threads) {
            long millis = (end - System.nanoTime()) / 1_000_000;
            if (millis > 0) {
                thread.join(millis);
            }
        }
        return threads.stream().filter(Thread::isAlive).count();
    }
}
