/// The outcome of an attempt that does not wait, or waits for a limited time.
///
/// Returned by `try_lock`, `try_read`, `try_write`, `try_acquire`, and their forms with a time limit. It is not an [`Option`], because the compiler does not warn about
/// an unused `Option`: `lock.try_lock().await?;` would compile, and hold nothing.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::TryAcquire;
///
/// let client = turnlock::Client::connect("memory://").await?;
/// match client.lock("nightly").try_lock().await? {
///     TryAcquire::Acquired(guard) => guard.unlock().await?,
///     TryAcquire::Busy => println!("runs elsewhere"),
/// }
/// # let guard = client.lock("nightly").lock().await?;
/// // As an `Option`:
/// let Some(guard) = client.lock("nightly").try_lock().await?.acquired() else { return Ok(()) };
/// # drop(guard);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the lock is released at once if this is dropped, and `Busy` means that it is not held"]
#[expect(clippy::exhaustive_enums, reason = "there is no third outcome: a failure is an error")]
pub enum TryAcquire<G> {
    /// The lock or the permits are held until `G` is dropped.
    Acquired(G),
    /// The lock is held, a waiter of this client is ahead, or too few permits are free.
    Busy,
}

impl<G> TryAcquire<G> {
    /// Returns the guard, or `None` if the lock is busy.
    #[must_use = "the lock is released at once if the guard is dropped"]
    pub fn acquired(self) -> Option<G> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Busy => None,
        }
    }

    /// Returns `true` if nothing was acquired.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Converts the guard, if there is one.
    pub fn map<T>(self, convert: impl FnOnce(G) -> T) -> TryAcquire<T> {
        self.acquired().map(convert).into()
    }
}

impl<G> From<Option<G>> for TryAcquire<G> {
    fn from(guard: Option<G>) -> Self {
        guard.map_or(Self::Busy, Self::Acquired)
    }
}

impl<G> From<TryAcquire<G>> for Option<G> {
    fn from(outcome: TryAcquire<G>) -> Self {
        outcome.acquired()
    }
}
