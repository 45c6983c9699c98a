/// One who asks the program for a lock, and one in Java: at one name, each keeps the other out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rivals {
    pub(super) title: &'static str,
    /// How the program is asked.
    pub(super) flags: &'static [&'static str],
    /// The object of Java.
    pub(super) java: &'static str,
}

impl Rivals {
    pub(super) const LOCK: Self = Self { title: "lock", flags: &[], java: "lock" };
    const FAIR: Self = Self { title: "fair", flags: &["--fair"], java: "fair" };
    const FENCED: Self = Self { title: "fenced", flags: &["--fenced"], java: "fenced" };
    const READ_BESIDE_WRITE: Self = Self { title: "read_beside_write", flags: &["-s"], java: "write" };
    const WRITE_BESIDE_WRITE: Self = Self { title: "write_beside_write", flags: &["-x"], java: "write" };
    const WRITE_BESIDE_READ: Self = Self { title: "write_beside_read", flags: &["-x"], java: "read" };

    pub(super) const ALL: [Self; 6] = [
        Self::LOCK,
        Self::FAIR,
        Self::FENCED,
        Self::READ_BESIDE_WRITE,
        Self::WRITE_BESIDE_WRITE,
        Self::WRITE_BESIDE_READ,
    ];

    /// One for each object that Java has.
    pub(super) const OF_EACH_OBJECT: [Self; 5] =
        [Self::LOCK, Self::FAIR, Self::FENCED, Self::WRITE_BESIDE_WRITE, Self::WRITE_BESIDE_READ];
}
