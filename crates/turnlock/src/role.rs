use turnlock_core as core;

/// The role in which a holder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The only holder of a lock.
    Holder,
    /// A reader, among others.
    Reader,
    /// The writer, which can read as well.
    Writer,
    /// A taken permit.
    Permit,
}

impl Role {
    /// A holder in this role holds a lock of this kind: of a read-write lock, this side.
    pub(crate) fn matches_kind(self, kind: core::Kind) -> bool {
        match kind {
            core::Kind::Read => self == Self::Reader,
            core::Kind::Write => self == Self::Writer,
            _ => true,
        }
    }

    pub(crate) fn from_core(role: core::model::Role) -> Self {
        match role {
            core::model::Role::Holder => Self::Holder,
            core::model::Role::Reader => Self::Reader,
            core::model::Role::Writer => Self::Writer,
            core::model::Role::Permit => Self::Permit,
        }
    }
}
