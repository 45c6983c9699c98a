//! Any text can be a name, an owner, a permit id or a pattern, or is an error: none causes a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use turnlock_core::model::PermitId;
use turnlock_core::{ClientId, Glob, Kind, LockName, NameError, OwnerId, slot};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() }
}

/// Short and long texts of characters that have a meaning somewhere, and of any others.
fn text() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "{",
        "}",
        ":",
        "*",
        "?",
        "[",
        "]",
        "^",
        "-",
        "\\",
        "a",
        "0",
        "ö",
        "日",
        "😀",
        "\0",
        "\n",
        "\u{202e}",
        "07070707-0707-4707-8707-070707070707",
        ":18446744073709551615",
        ":18446744073709551616",
        ":+1",
        "turnlock_waits",
        "turnlock_client:",
    ];
    prop_oneof![
        4 => vec(select(PARTS), 0..16).prop_map(|parts| parts.concat()),
        2 => any::<String>(),
        1 => (select(PARTS), 0..5_000_usize).prop_map(|(part, times)| part.repeat(times)),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_text_is_a_name_or_an_error(
        kind in select(&Kind::ALL[..]), prefix in text(), text in text(), waiter in text(),
    ) {
        let len = prefix.len() + text.len();
        let name = match LockName::of(kind, &prefix, &text) {
            Err(error) => {
                let (key, is_empty) = (prefix + &text, text.is_empty());
                let is_reserved = key == LockName::ACTIVITY || key.starts_with("turnlock_client:");
                let expected = match () {
                    () if is_empty => NameError::Empty,
                    () if len > LockName::MAX_LEN => NameError::TooLong(len),
                    () => NameError::Reserved(key),
                };
                prop_assert_eq!(error, expected);
                prop_assert!(is_empty || len > LockName::MAX_LEN || is_reserved);
                return Ok(());
            }
            Ok(name) => name,
        };
        let key = prefix + &text;
        prop_assert_eq!((name.as_str(), name.key(), name.kind()), (&*text, &*key, kind));
        prop_assert!(name.channel().contains(&key));
        prop_assert!(name.slot() < 16_384 && slot(&name.beside("p")) < 16_384 && slot(&name.below("s")) < 16_384);
        prop_assert!(name.waiter().is_none() && !name.is_for_one_waiter());
        let waiter = OwnerId::from_wire(&waiter);
        let of_waiter = name.for_waiter(&waiter);
        prop_assert_eq!(of_waiter.waiter(), Some(waiter.clone()));
        prop_assert_eq!((of_waiter.key(), of_waiter.as_str()), (&*key, &*text));
        prop_assert_eq!(of_waiter.common_channel(), name.channel());
        prop_assert!(name.for_client_of(&waiter).key() == key);
        for other in Kind::ALL {
            prop_assert!(of_waiter.with_kind(other).key() == key);
        }
    }

    #[test]
    fn any_text_is_an_owner_and_has_parts_only_in_its_own_spelling(text in text()) {
        let owner = OwnerId::from_wire(&text);
        prop_assert_eq!(owner.as_str(), &*text);
        if let Some((client, number)) = owner.parts() {
            prop_assert!(owner.belongs_to(client));
            prop_assert_eq!(client.owner(number).parts(), Some((client, number)));
        }
        if let Some(client) = ClientId::from_wire(&text) {
            prop_assert_eq!(client.to_string(), text);
        }
        prop_assert!(PermitId::record_of(&owner).is_none_or(|_| owner.parts().is_none()));
        for id in PermitId::of_hold(&owner, 3) {
            let again = PermitId::of_hold(&id.to_owner(), 1).next();
            prop_assert_eq!(again, Some(id), "an id is its own text");
            prop_assert!(PermitId::record_of(&id.to_owner()).is_some());
        }
    }

    #[test]
    fn any_text_is_a_pattern_that_is_matched_in_bounded_time(pattern in text(), name in text(), prefix in text()) {
        let glob = Glob::new(&pattern);
        let key = [&*prefix, &*name].concat();
        if glob.matches(&name) {
            prop_assert!(Glob::new(&glob.widened(&prefix)).matches(&key));
        }
        let exact = Glob::new(&Glob::escape(&name));
        prop_assert!(exact.matches(&name));
        prop_assert_eq!(exact.matches(&key), prefix.is_empty());
    }
}
