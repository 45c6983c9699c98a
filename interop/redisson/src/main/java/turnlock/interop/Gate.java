package turnlock.interop;

/** Something that lets one in at a time. */
interface Gate {
    /** Waits to be let in; the answer lets the next one in. */
    Runnable enter() throws InterruptedException;
}
