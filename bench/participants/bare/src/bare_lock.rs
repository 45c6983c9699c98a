/// A lock: its name, its channel, and an owner.
pub(crate) struct BareLock {
    pub(crate) name: String,
    pub(crate) channel: String,
    pub(crate) owner: String,
}

impl BareLock {
    pub(crate) fn new(name: &str, number: u64) -> Self {
        Self { name: name.to_owned(), channel: channel(name), owner: owner(number) }
    }
}

/// The channel on which releases are published.
pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// An owner as long as one in Redisson's format, and different in each process.
fn owner(number: u64) -> String {
    format!("{:08x}-35b6-4c2a-9d0e-6b6c4d1e7f11:{number}", std::process::id())
}
