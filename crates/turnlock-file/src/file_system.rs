//! Which file systems are local to one machine.

use std::path::Path;

use super::file_error::FileError;

/// Rejects a path whose file system is not known to be local.
///
/// File locks, and the memory that `SQLite` shares between processes, often do not work between machines:
/// each machine would consider the processes of the others dead, and end their holds.
pub(super) fn check(path: &Path) -> Result<(), FileError> {
    let Err(name) = check_local(path) else { return Ok(()) };
    Err(FileError::BadPath(format!(
        "{} is not known to be on a local disk (file system: {name}). If several machines use the file, each ends the \
         locks of the others. Use a path on a local disk, or Redis. If only this machine uses it, such as a directory \
         shared by the host of a container or virtual machine, add ?any_file_system=yes to the path",
        path.display()
    )))
}

/// Returns the name of the file system as the error if it is not known to be local.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn check_local(path: &Path) -> Result<(), String> {
    let found = rustix::fs::statfs(path).map_err(|error| format!("unknown, {error}"))?;
    // A 32-bit number, which is negative on some architectures.
    classify(u64::try_from(i128::from(found.f_type) & 0xFFFF_FFFF).unwrap_or_default())
}

#[cfg(any(target_vendor = "apple", target_os = "freebsd", target_os = "dragonfly", target_os = "openbsd"))]
fn check_local(path: &Path) -> Result<(), String> {
    /// The same number on all of these systems.
    const MNT_LOCAL: u64 = 0x1000;
    let found = rustix::fs::statfs(path).map_err(|error| format!("unknown, {error}"))?;
    let flags = u64::try_from(found.f_flags).unwrap_or_default();
    if flags & MNT_LOCAL != 0 { Ok(()) } else { Err("not marked as local".to_owned()) }
}

/// There is no known way to find out on other systems.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "openbsd"
)))]
fn check_local(_: &Path) -> Result<(), String> {
    Err("unknown".to_owned())
}

/// Classifies the type number of a file system on Linux. Returns its name as the error if it is not local.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn classify(number: u64) -> Result<(), String> {
    if LOCAL.iter().any(|(local, _)| *local == number) {
        return Ok(());
    }
    let known = OTHERS.iter().find(|(other, _)| *other == number);
    Err(known.map_or_else(|| format!("unknown type {number:#x}"), |(_, name)| (*name).to_owned()))
}

/// File systems that only one kernel can mount for writing. Overlay accepts no network file system as its
/// upper layer.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOCAL: [(u64, &str); 19] = [
    (0xEF53, "ext2, ext3, ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "Btrfs"),
    (0xF2F5_2010, "F2FS"),
    (0x2FC1_2FC1, "ZFS"),
    (0xCA45_1A4E, "bcachefs"),
    (0x3153_464A, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x3434, "NILFS"),
    (0x2405_1905, "UBIFS"),
    (0x72B6, "JFFS2"),
    (0x0001_1954, "UFS"),
    (0x482B, "HFS+"),
    (0x4D44, "FAT"),
    (0x2011_BAB0, "exFAT"),
    (0x7366_746E, "NTFS"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, "overlay"),
];

/// File systems that several machines may share, or that may be stacked on such a one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const OTHERS: [(u64, &str); 20] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x2003_0528, "OrangeFS"),
    (0x7375_7245, "Coda"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
    (0x6175_6673, "aufs"),
    (0xF15F, "eCryptfs"),
];

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_known_to_be_local_are_accepted() {
        for number in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1] {
            assert_eq!(classify(number), Ok(()), "{number:#x}");
        }
        for (number, name) in [
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0x0BD0_0BD0, "Lustre"),
            (0x4750_4653, "GPFS"),
            (0x1983_0326, "BeeGFS"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE"),
            (0x1234_5678, "unknown type 0x12345678"),
            (0, "unknown type 0x0"),
        ] {
            assert_eq!(classify(number), Err(name.to_owned()), "{number:#x}");
        }
    }

    #[test]
    fn no_number_is_on_both_lists() {
        let both = LOCAL.iter().find(|(number, _)| OTHERS.iter().any(|(other, _)| number == other));
        assert_eq!(both, None);
    }

    #[test]
    fn mounted_file_systems_are_classified() {
        assert_eq!(check_local(&std::env::temp_dir()), Ok(()));
        assert!(check_local(Path::new("/proc")).is_err());
        assert!(check_local(Path::new("/no/such/directory")).is_err());
    }
}
