use std::mem;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use turnlock_redis::{ClusterMessages, Target};
use turnlock_store::Secret;

use super::*;
use crate::error::IntoError;

const CANARY: &str = "quokka";
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the target to which this URL connects, after the checks of all settings.
fn target(url: &str) -> Result<Target, Error> {
    let StoreUrl { store, mut settings } = StoreUrl::parse(url)?;
    match store {
        Location::Redis { servers, use_tls } => {
            let redis = mem::take(&mut settings.redis);
            settings.check("a Redis store", true)?;
            redis.read_target(servers, use_tls, LIMIT).map_err(|error| error.into_error(String::new))
        }
        #[cfg(all(feature = "file", unix))]
        Location::File { path } => panic!("{url} is the file store {}", path.display()),
        Location::Memory { .. } => {
            settings.check("a memory store", false)?;
            panic!("{url} is a memory store")
        }
    }
}

/// Formats a target: its servers, and `user:password/database`.
fn describe(target: &Target) -> String {
    let access = &target.access;
    let user = access.username.as_deref().unwrap_or("-");
    let password = access.password.as_ref().map_or("-", Secret::reveal);
    let tls = if access.tls.is_some() { " with TLS" } else { "" };
    format!("{} as {user}:{password}/{}{tls}", target.servers, access.database)
}

#[test]
fn urls_are_parsed() {
    for (url, expected) in [
        ("redis://localhost", "localhost:6379 as -:-/0"),
        (" redis://localhost/\n", "localhost:6379 as -:-/0"),
        ("REDIS://LocalHost:1/3", "localhost:1 as -:-/3"),
        ("valkey://h", "h:6379 as -:-/0"),
        ("redis://my_redis.internal", "my_redis.internal:6379 as -:-/0"),
        ("redis://[::1]", "[::1]:6379 as -:-/0"),
        ("redis://[0:0::1]:7/1", "[::1]:7 as -:-/1"),
        ("redis://:pass@h", "h:6379 as -:pass/0"),
        ("redis://me:pass@h:1/2", "h:1 as me:pass/2"),
        ("redis://me:p:a@s,s@h", "h:6379 as me:p:a@s,s/0"),
        ("redis://m%40e:p%2F%3F%23%25%C3%BC@h", "h:6379 as m@e:p/?#%ü/0"),
        ("redis://:pass@h?user=me&db=4", "h:6379 as me:pass/4"),
        ("redis://:a+b@h", "h:6379 as -:a+b/0"),
        ("redis://:pass@[::1]:8?db=4", "[::1]:8 as -:pass/4"),
        ("unix:///run/a@b.sock", "/run/a@b.sock as -:-/0"),
        ("redis+unix:///run/a%20b.sock?db=2", "/run/a b.sock as -:-/2"),
        ("redis+unix://me:pass@/run/x", "/run/x as me:pass/0"),
        ("redis+sentinel://a,b:1/m", "the master \"m\" of the sentinels a:26379, b:1 as -:-/0"),
        (
            "redis+sentinel://:p@[::1],b/m%2Fn/3",
            "the master \"m/n\" of the sentinels [::1]:26379, b:26379 as -:p/3",
        ),
        ("redis+sentinel://a/m?db=3", "the master \"m\" of the sentinels a:26379 as -:-/3"),
        ("redis+cluster://a,b:1", "the cluster of a:6379, b:1 as -:-/0"),
        ("redis+cluster://me:p@a/0", "the cluster of a:6379 as me:p/0"),
        ("redis://h?messages_=", "unknown"),
    ] {
        match target(url) {
            Ok(target) => assert_eq!(describe(&target), expected, "{url}"),
            Err(error) => assert!(error.to_string().contains(expected), "{url}: {error}"),
        }
    }
}

#[cfg(feature = "tls")]
#[test]
fn rediss_urls_use_tls() {
    for (url, expected) in [
        ("rediss://h", "h:6379 as -:-/0 with TLS"),
        ("valkeys://h?server_name=other", "h:6379 as -:-/0 with TLS"),
        ("rediss+sentinel://h/m", "the master \"m\" of the sentinels h:26379 as -:-/0 with TLS"),
        ("rediss+cluster://h?server_name=10.0.0.1", "the cluster of h:6379 as -:-/0 with TLS"),
    ] {
        // Does not read the CAs of the system, which the test machine may not have.
        let url = format!("{url}{}verify=no", if url.contains('?') { '&' } else { '?' });
        assert_eq!(describe(&target(&url).expect(&url)), expected, "{url}");
    }
}

#[test]
fn sentinels_have_their_own_credentials() {
    let url = "redis+sentinel://me:pass@h/m/2?sentinel_user=watcher&sentinel_password_env=PATH&client_name=a";
    let access = target(url).expect(url).sentinel_access;
    assert_eq!(access.username.as_deref(), Some("watcher"));
    assert_eq!(access.password.as_ref().map(Secret::reveal), std::env::var("PATH").ok().as_deref());
    assert_eq!((access.database, access.client_name.as_deref()), (0, Some("a")));

    let access = target("redis+sentinel://me:pass@h/m").expect("a URL").sentinel_access;
    assert_eq!(
        (access.username, access.password),
        (None, None),
        "the password of the servers is not sent to sentinels"
    );
}

#[test]
fn parameters_are_read() {
    let url = "redis+cluster://h?connect_timeout=500ms&response_timeout=2m&replicas=2&messages=plain";
    let settings = StoreUrl::parse(url).expect(url).settings;
    assert_eq!(settings.connect_timeout, Some(Duration::from_millis(500)));
    assert_eq!(settings.response_timeout, Some(Duration::from_secs(120)));
    assert_eq!(settings.replicas, Some(2));
    assert_eq!(settings.redis.messages, Some(ClusterMessages::Plain));
    let settings = StoreUrl::parse("memory://?response_timeout=5s").expect("a URL").settings;
    assert_eq!(settings.response_timeout, Some(Duration::from_secs(5)));
    assert!(settings.check("a memory store", false).is_ok());
}

#[cfg(all(feature = "file", unix))]
#[test]
fn a_file_has_one_parameter() {
    for (url, path, any_file_system) in [
        ("file:/a/b", "/a/b", None),
        ("file:/a?b=c", "/a?b=c", None),
        ("file:/a?b?any_file_system=yes", "/a?b", Some(true)),
        ("file:///a%20b?any_file_system=no", "/a b", Some(false)),
        ("file:?any_file_system=yes", "", Some(true)),
    ] {
        let StoreUrl { store, settings } = StoreUrl::parse(url).expect(url);
        assert_eq!(store, Location::File { path: path.into() }, "{url}");
        assert_eq!(settings.file.any_file_system, any_file_system, "{url}");
    }
    for url in
        ["file:/a?any_file_system=quokka", "redis://h?any_file_system=yes", "memory://?any_file_system=yes"]
    {
        let error = target(url).expect_err(url);
        let Error::BadConfiguration { setting, .. } = &error else { panic!("{url}: {error}") };
        assert_eq!(*setting, "any_file_system", "{url}: {error}");
        assert!(!error.to_string().contains(CANARY), "{error}");
    }
}

/// Invalid URLs, and the setting that the error names.
const INVALID: &[(&str, &str)] = &[
    ("", "url"),
    ("orders", "url"),
    ("quokka@h", "url"),
    ("h:quokka", "url"),
    ("h:quokka@h", "url"),
    ("http://h", "url"),
    ("redis+://h", "url"),
    ("quokka://h", "url"),
    ("redis:h", "url"),
    ("redis://", "url"),
    ("redis:///1", "url"),
    ("redis://:6379", "url"),
    ("redis://h:", "url"),
    ("redis://h:0", "url"),
    ("redis://h:+1", "url"),
    ("redis://h:65536", "url"),
    ("redis://h:quokka", "url"),
    ("redis://h/quokka", "url"),
    ("redis://h/1/quokka", "url"),
    ("redis://h/-1", "url"),
    ("redis://::1", "url"),
    ("redis://[quokka]", "url"),
    ("redis://[::1", "url"),
    ("redis://[::1]quokka", "url"),
    ("redis://quo kka", "url"),
    ("redis://a,b", "url"),
    ("redis+cluster://a,,b", "url"),
    ("redis+cluster://a,b:quokka", "url"),
    ("redis+sentinel://a,/m", "url"),
    // Characters of a password that are not encoded.
    ("redis://:quo/kka@h", "url"),
    ("redis://:quo?kka@h", "url"),
    ("redis://:quo?kka=1@h", "url"),
    ("redis://:quo#kka@h", "url"),
    ("redis://:/quokka@h", "url"),
    ("redis://me:%FFquokka@h", "password"),
    ("redis://me%FFquokka:x@h", "user"),
    ("redis+unix://quokka/run/x", "url"),
    ("redis+unix://:quokka@", "url"),
    ("redis+unix://", "url"),
    ("redis://h?quokka", "url"),
    ("redis://h?quo.kka=1", "url"),
    ("redis://h?nonsense=quokka", "url"),
    ("redis://h?password=quokka", "url"),
    ("redis://h?DB=1", "url"),
    ("redis://h?db=1&db=1", "db"),
    ("redis://h/1?db=1", "database"),
    ("redis://h?db=quokka", "db"),
    ("redis://h?db=", "db"),
    ("redis://h?connect_timeout=5", "connect_timeout"),
    ("redis://h?connect_timeout=quokka", "connect_timeout"),
    ("redis://h?connect_timeout=ms", "connect_timeout"),
    ("redis://h?response_timeout=1h", "response_timeout"),
    ("redis://h?response_timeout=99999999999999999999s", "response_timeout"),
    ("redis://h?response_timeout=999999999999999999m", "response_timeout"),
    ("redis://h?replicas=-1", "replicas"),
    ("redis://h?replicas=4294967296", "replicas"),
    ("memory://?replicas=1", "replicas"),
    ("memory://?user=x", "user"),
    ("memory://?ca_file=x", "ca_file"),
    ("redis://h?client_name=", "client_name"),
    ("redis://h?client_name=a%20b", "client_name"),
    ("redis://h?client_name=a%0Ab", "client_name"),
    ("redis://h?client_name=%C3%BC", "client_name"),
    ("redis://me:quokka@h?user=you", "user"),
    ("redis://quokka@h", "user"),
    ("redis://h?user=quokka", "user"),
    ("redis://:quokka@h?user=", "user"),
    ("redis://:@h", "password"),
    ("redis://:quokka@h?password_env=PATH", "password"),
    ("redis://h?password_env=PATH&password_file=/x", "password"),
    ("redis://h?password_file=/nowhere", "password_file"),
    ("redis://h?password_env=TURNLOCK_NO_SUCH_VARIABLE", "password_env"),
    ("redis://h?password_env=", "password_env"),
    ("redis://h?sentinel_user=x", "sentinel_user"),
    ("redis+cluster://h?sentinel_password_env=PATH", "sentinel_password_env"),
    ("redis+sentinel://h/m?sentinel_user=x", "sentinel_user"),
    ("redis+sentinel://h/m?sentinel_password_file=/nowhere", "sentinel_password_file"),
    ("memory://a/b:quo?kka=1@h", "url"),
    ("redis+sentinel://h/m/x", "url"),
    ("redis+sentinel://h", "master_name"),
    ("redis+sentinel://h/", "master_name"),
    ("redis+sentinel://h//1", "master_name"),
    ("redis+sentinel://h/m%FF", "master_name"),
    ("redis+cluster://h/1", "database"),
    ("redis+cluster://h?db=1", "database"),
    ("redis+cluster://h?messages=some", "messages"),
    ("redis://h?messages=auto", "messages"),
    ("redis+sentinel://h/m?messages=plain", "messages"),
    ("redis://h?ca_file=/x", "ca_file"),
    ("redis://h?cert_file=/x&key_file=/y", "cert_file"),
    ("redis+cluster://h?server_name=x", "server_name"),
    ("redis+sentinel://h/m?verify=yes", "verify"),
    ("redis+unix:///x?key_file=/y", "key_file"),
    ("rediss://h?verify=maybe", "verify"),
    ("rediss://h?verify=no&ca_file=/x", "verify"),
    ("rediss://h?cert_file=/x", "cert_file"),
    ("rediss://h?key_file=/x", "key_file"),
    ("rediss://h?server_name=", "server_name"),
];

#[test]
fn errors_name_the_setting_and_show_no_secret() {
    for (url, expected) in INVALID {
        let error = target(url).expect_err(url);
        assert!(
            matches!(&error, Error::BadConfiguration { setting, .. } if setting == expected),
            "{url}: {error}"
        );
        let text = format!("{error} {error:?}");
        assert!(!["quo", "kka"].iter().any(|piece| text.contains(piece)), "{url}: {text}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn errors_name_bad_tls_files() {
    let not_pem = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (url, expected, text) in [
        ("rediss://h?ca_file=/nowhere".to_owned(), "ca_file", "/nowhere"),
        (format!("rediss://h?ca_file={not_pem}"), "ca_file", not_pem),
        (format!("rediss://h?verify=no&cert_file={not_pem}&key_file=/nowhere"), "cert_file", not_pem),
        ("rediss://h?verify=no&server_name=a%20b".to_owned(), "server_name", "name"),
    ] {
        let error = target(&url).expect_err(&url);
        assert!(
            matches!(&error, Error::BadConfiguration { setting, .. } if *setting == expected),
            "{url}: {error}"
        );
        assert!(error.to_string().contains(text), "{url}: {error}");
    }
}

#[test]
fn an_unknown_parameter_error_lists_the_known_ones() {
    let text = StoreUrl::parse("redis://h?nonsense=1").expect_err("an unknown parameter").to_string();
    assert!(text.contains("`nonsense`") && text.contains("connect_timeout"), "{text}");
    let text = StoreUrl::parse("redis://h?password=1").expect_err("an unknown parameter").to_string();
    assert!(text.contains("password_file"), "{text}");
}

#[test]
fn debug_and_display_do_not_show_the_password() {
    let url = format!("redis://me:{CANARY}@h?db=1");
    let parsed = StoreUrl::parse(&url).expect("a URL");
    let target = target(&url).expect("a URL");
    assert!(!format!("{parsed:?} {target:?} {}", target.servers).contains(CANARY));
}

#[test]
fn an_address_or_a_path_is_shown_as_a_url() {
    for (text, expected) in [
        ("localhost:6379", "write redis://localhost:6379"),
        ("10.0.0.1:1", "write redis://10.0.0.1:1"),
        ("/run/locks", "write file:/run/locks"),
        ("/run/a:b", "write file:/run/a:b"),
        ("localhost", "write redis://HOST:PORT"),
        ("", "empty; write redis://HOST:PORT"),
    ] {
        let error = StoreUrl::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_memory_store_can_have_a_name() {
    for (url, expected) in [("memory://", ""), ("memory:", ""), ("memory://Orders", "Orders")] {
        let store = StoreUrl::parse(url).expect(url).store;
        assert_eq!(store, Location::Memory { name: expected.to_owned() }, "{url}");
    }
}

#[test]
fn an_at_sign_in_a_parameter_of_a_memory_store_is_written_as_percent_40() {
    let error = StoreUrl::parse("memory://x?label=quokka@host").expect_err("an @").to_string();
    assert!(error.contains("write %40") && !error.contains(CANARY), "{error}");
    let error = StoreUrl::parse("memory://x?label=quokka%40host").expect_err("unknown").to_string();
    assert!(error.contains("`label`") && !error.contains(CANARY), "{error}");
    let settings = StoreUrl::parse("memory://x?client_name=me%40host").expect("a URL").settings;
    assert_eq!(settings.redis.client_name.as_deref(), Some("me@host"));
}

/// Parts of URLs in any order, and other texts.
fn any_url() -> impl Strategy<Value = String> {
    const SCHEMES: &[&str] = &[
        "redis",
        "rediss",
        "valkey",
        "valkeys",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "redis+unix",
        "unix",
        "memory",
        "file",
        "REDIS",
        "http",
        "redis+x",
        "",
    ];
    const PARTS: &[&str] = &[
        "h",
        "host.example",
        "127.0.0.1",
        "[::1]",
        "[::1",
        "::1",
        "xn--a",
        "xn--\u{80}",
        "日本",
        "İ",
        "\u{200d}",
        ":",
        "@",
        "/",
        "?",
        "#",
        "&",
        "=",
        ",",
        "%",
        "%41",
        "%FF",
        "%zz",
        "6379",
        "0",
        "65536",
        "99999999999999999999",
        "-1",
        " ",
        "\0",
        "db=1",
        "user=me",
        "replicas=4294967296",
        "connect_timeout=",
        "response_timeout=",
        "500ms",
        "18446744073709551615s",
        "9999999999999999y",
        "1s 1s",
        "verify=no",
        "messages=plain",
        "client_name=a b",
        "any_file_system=yes",
        "server_name=",
        "sentinel_user=x",
        "password_env=",
        "password_file=",
        "master",
        "localhost",
    ];
    let parts = (select(SCHEMES), select(&["://", ":", "//", ""][..]), vec(select(PARTS), 0..12));
    prop_oneof![
        8 => parts.prop_map(|(scheme, start, parts)| format!("{scheme}{start}{}", parts.concat())),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_url_or_an_error(url in any_url()) {
        match StoreUrl::parse(&url) {
            // Without TLS, which reads the certificates of the system.
            Ok(StoreUrl { store: Location::Redis { use_tls: false, .. }, .. }) => {
                let is_settled = matches!(target(&url), Ok(_) | Err(Error::BadConfiguration { .. }));
                prop_assert!(is_settled, "{}", url);
            }
            Ok(StoreUrl { settings, .. }) => {
                let _ = settings.check("a store", true);
            }
            Err(error) => prop_assert!(matches!(error, Error::BadConfiguration { .. }), "{}", error),
        }
    }

    #[test]
    fn no_error_and_no_debug_output_shows_a_password(
        scheme in select(&["redis", "rediss", "valkey", "redis+sentinel", "redis+cluster", "redis+unix", "memory", "x"][..]),
        user in select(&["", "me", "m e", "%FF", "a/b"][..]),
        marks in vec(select(&["", "/", "?", "#", "@", "%", "&", "=", ":", ",", "[", "]", " ", "db=1", "%FF", "ü"][..]), 4),
        rest in select(&["h", "h:1/2", "h:x", "a,b/m", "[::1", "/run/x", "h/x", "h?db=x", "h?nonsense=1", "h?db", ""][..]),
    ) {
        let [before, between, inside, after] = &marks[..] else { panic!("four marks") };
        let url = format!("{scheme}://{user}:{before}quo{between}kka{inside}quo{after}@{rest}");
        let shown = match StoreUrl::parse(&url) {
            Err(error) => format!("{error} {error:?}"),
            Ok(parsed) if matches!(parsed.store, Location::Redis { use_tls: false, .. }) => match target(&url) {
                Err(error) => format!("{parsed:?} {error} {error:?}"),
                Ok(target) => format!("{parsed:?} {target:?} {}", target.servers),
            },
            Ok(parsed) => format!("{parsed:?}"),
        };
        prop_assert!(!shown.contains("quo") && !shown.contains("kka"), "{}: {}", url, shown);
    }
}
