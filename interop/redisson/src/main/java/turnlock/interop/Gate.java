package turnlock.interop;

/** A lock or permit that excludes other threads. */
interface Gate {
    /** Waits to enter. Run the result to leave. */
    Runnable enter() throws InterruptedException;
}
