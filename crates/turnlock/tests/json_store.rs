//! The conformance suite on the store of the example `json_store`: a store from outside the library.

#![cfg_attr(not(unix), allow(dead_code))]

#[path = "../examples/json_store.rs"]
#[allow(dead_code, unreachable_pub, reason = "its `main` is not called")]
mod json_store;

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() {
    use turnlock_testkit::conformance::{Feature, Suite};

    // It cannot list locks, and keeps no records of clients.
    Suite::new("json", async || json::TestStore::new()).without(Feature::Directory).main();
}

#[cfg(unix)]
mod json {
    use std::fs::File;
    use std::path::PathBuf;
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use rustix::fs::{FlockOperation, flock};
    use turnlock::{Builder, Client, Error, blocking};
    use turnlock_testkit::TempDir;
    use turnlock_testkit::conformance::StoreUnderTest;

    use crate::json_store::JsonStore;

    /// Each case has its own file.
    pub(crate) struct TestStore(TempDir);

    impl TestStore {
        pub(crate) fn new() -> Self {
            Self(TempDir::new())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("locks.json")
        }
    }

    impl StoreUnderTest for TestStore {
        fn client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>> {
            let path = self.path();
            Box::pin(async { builder.store(|client| Arc::new(JsonStore::new(path, client))) })
        }

        fn blocking_client(&self, builder: Builder) -> Result<blocking::Client, Error> {
            let path = self.path();
            blocking::Builder::from(builder).store(|client| Arc::new(JsonStore::new(path, client)))
        }

        fn lose_data(&self, _: &str) -> BoxFuture<'_, ()> {
            let file = File::options().write(true).open(self.path()).expect("a file");
            // Not during a step, which would write the data again.
            flock(&file, FlockOperation::LockExclusive).expect("locked");
            file.set_len(0).expect("truncated");
            Box::pin(std::future::ready(()))
        }

        /// By another path to the same file, the client knows no other, as in a process of its own.
        fn mute_client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>> {
            let other = self.0.path().join("same");
            std::os::unix::fs::symlink(self.0.path(), &other).expect("linked");
            let path = other.join("locks.json");
            Box::pin(async { builder.store(|client| Arc::new(JsonStore::new(path, client))) })
        }
    }
}
