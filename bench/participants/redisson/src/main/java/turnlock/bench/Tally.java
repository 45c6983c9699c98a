package turnlock.bench;

import java.util.Arrays;
import java.util.stream.Stream;

/** What came of the work so far. Each task has a place of its own, whose monitor nobody else wants before the end. */
final class Tally {
    private final Place[] places;
    private long errors;
    private String firstError = "";

    Tally(int tasks) {
        places = Stream.generate(Place::new).limit(tasks).toArray(Place[]::new);
    }

    /** Counts a turn of which no time is kept. */
    void turn(int task) {
        places[task].turn();
    }

    /** Counts a turn and keeps its time. */
    void turn(int task, long nanos) {
        places[task].turn(nanos);
    }

    synchronized void error(String what) {
        if (errors == 0) {
            firstError = what;
        }
        errors += 1;
    }

    /** Counts the tasks that were not done in time, if there are any, as one error. */
    void late(int tasks) {
        if (tasks > 0) {
            error(tasks + " tasks were not done in time");
        }
    }

    /** One line of JSON. */
    synchronized String report(long start) {
        double seconds = (System.nanoTime() - start) / 1e9;
        long[] perTask = new long[places.length];
        long[][] nanos = new long[places.length][];
        for (int task = 0; task < places.length; task++) {
            synchronized (places[task]) {
                perTask[task] = places[task].turns;
                nanos[task] = places[task].nanos();
            }
        }
        return "{\"turns\":" + Arrays.stream(perTask).sum()
                + ",\"seconds\":" + seconds
                + ",\"errors\":" + errors
                + ",\"first_error\":" + Json.text(firstError)
                + ",\"per_task\":" + Arrays.toString(perTask)
                + ",\"nanos\":" + Arrays.toString(Arrays.stream(nanos).flatMapToLong(Arrays::stream).toArray())
                + ",\"direct\":[]}";
    }

    private static final class Place {
        private long turns;
        private long[] nanos = {};
        private int kept;

        synchronized void turn() {
            turns += 1;
        }

        synchronized void turn(long took) {
            turns += 1;
            if (kept == nanos.length) {
                nanos = Arrays.copyOf(nanos, Math.max(16, 2 * kept));
            }
            nanos[kept] = took;
            kept += 1;
        }

        long[] nanos() {
            return Arrays.copyOf(nanos, kept);
        }
    }
}
