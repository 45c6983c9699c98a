/// A lock of the program and a lock of Java that exclude each other under one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockPair {
    pub(super) title: &'static str,
    /// Flags of `turnlock run`.
    pub(super) flags: &'static [&'static str],
    /// Kind of the Java object.
    pub(super) java: &'static str,
}

impl LockPair {
    pub(super) const LOCK: Self = Self { title: "lock", flags: &[], java: "lock" };
    const FAIR: Self = Self { title: "fair", flags: &["--fair"], java: "fair" };
    const FENCED: Self = Self { title: "fenced", flags: &["--fenced"], java: "fenced" };
    const READ_AND_WRITE: Self = Self { title: "read_and_write", flags: &["-s"], java: "write" };
    const WRITE_AND_WRITE: Self = Self { title: "write_and_write", flags: &["-x"], java: "write" };
    const WRITE_AND_READ: Self = Self { title: "write_and_read", flags: &["-x"], java: "read" };

    pub(super) const ALL: [Self; 6] = [
        Self::LOCK,
        Self::FAIR,
        Self::FENCED,
        Self::READ_AND_WRITE,
        Self::WRITE_AND_WRITE,
        Self::WRITE_AND_READ,
    ];

    /// One pair for each kind of Java object.
    pub(super) const ONE_PER_JAVA_KIND: [Self; 5] =
        [Self::LOCK, Self::FAIR, Self::FENCED, Self::WRITE_AND_WRITE, Self::WRITE_AND_READ];
}
