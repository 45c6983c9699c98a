use std::error;
use std::fmt;

use crate::error::Error;
use crate::guard::Guard;

/// The error of an operation that consumes a guard, with the guard.
///
/// A refused call does not release the lock: [`into_guard`](GuardError::into_guard) returns the guard.
///
/// In a function that returns [`Error`], the `?` operator converts this and drops the guard, which releases the lock. A
/// boxed error, as anyhow's, keeps the guard and the lock: use `.map_err(turnlock::Error::from)?`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = turnlock::Client::connect("memory://").await?;
/// let guard = client.lock("hourly-report").await?;
/// let refused = guard.unlock_after(Duration::ZERO).await.expect_err("the shortest lease is 10 ms");
/// let guard = refused.into_guard().expect("the lock is still held");
/// assert!(guard.is_valid());
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct GuardError<G = Guard> {
    error: Error,
    guard: Option<Box<G>>,
}

impl<G> GuardError<G> {
    /// The call was refused before anything changed.
    pub(crate) fn refused(error: Error, guard: G) -> Self {
        Self { error, guard: Some(Box::new(guard)) }
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the guard, or `None` if the operation had begun when it failed.
    pub fn into_guard(self) -> Option<G> {
        self.guard.map(|guard| *guard)
    }

    pub(crate) fn map<T>(self, convert: impl FnOnce(G) -> T) -> GuardError<T> {
        GuardError { error: self.error, guard: self.guard.map(|guard| Box::new(convert(*guard))) }
    }
}

impl<G> From<Error> for GuardError<G> {
    fn from(error: Error) -> Self {
        Self { error, guard: None }
    }
}

impl<G> From<GuardError<G>> for Error {
    fn from(error: GuardError<G>) -> Self {
        error.error
    }
}

impl<G> fmt::Display for GuardError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<G: fmt::Debug> error::Error for GuardError<G> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&self.error)
    }
}
