//! Who may send which requests: names, origins, tokens, headers.

use serde_json::json;
use turnlock_testkit::{Certificates, within};

use crate::dashboard::{Dashboard, program};
use crate::fixture::Fixture;
use crate::unlock::request;
use crate::{AWHILE, Case, cases, http};

pub(crate) const CASES: &[Case] = cases![
    every_response_has_the_security_headers,
    only_own_host_names_are_served,
    requests_of_other_origins_are_refused,
    a_request_that_changes_something_needs_the_secret_header,
    without_the_flag_no_request_releases_a_lock,
    another_address_needs_a_token,
    the_token_opens_every_route_and_a_session_replaces_it,
    the_page_is_served_by_tls,
    a_signal_ends_it_with_exit_code_0,
];

pub(crate) const REDIS_CASES: &[Case] = cases![a_password_is_never_shown];

const DATA: &[&str] = &["/api/session", "/api/events", "/api/holds/=orders", "/api/doctor"];

async fn every_response_has_the_security_headers(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                  frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    for (path, status) in [("/", 200), ("/page.js", 200), ("/api/session", 200), ("/nothing", 404)] {
        let response = dashboard.get(path).await;
        assert_eq!(response.status, status, "{response:?}");
        assert_eq!(response.header("content-security-policy"), Some(policy));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(response.header("x-frame-options"), Some("DENY"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    let refused = http::send(dashboard.address, "GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n").await;
    assert_eq!((refused.status, refused.header("content-security-policy")), (403, Some(policy)));
    assert_eq!(refused.header("connection"), Some("close"), "whoever is refused keeps no connection");
}

async fn only_own_host_names_are_served(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--host", "dash.example.com"]).await;
    let port = dashboard.address.port();
    for (host, status) in [
        (format!("localhost:{port}"), 200),
        (format!("[::1]:{port}"), 200),
        ("dash.example.com".to_owned(), 200),
        // A name that an attacker resolves to this machine.
        (format!("rebound.example.com:{port}"), 403),
        (format!("127.0.0.1.example.com:{port}"), 403),
        ("dash.example.com.evil.com".to_owned(), 403),
    ] {
        for path in ["/", "/api/session", "/api/events"].into_iter().take(if status == 200 { 2 } else { 3 }) {
            let response = dashboard.send("GET", path, &[&format!("Host: {host}")], "").await;
            assert_eq!(response.status, status, "{host} {path}: {response:?}");
        }
    }
    for head in ["", "Host: localhost\r\nHost: evil.example.com\r\n"] {
        let request = format!("GET /api/session HTTP/1.1\r\nConnection: close\r\n{head}\r\n");
        let response = http::send(dashboard.address, &request).await;
        assert_eq!(response.status, 400, "{head:?}: {response:?}");
    }
}

async fn requests_of_other_origins_are_refused(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--host", "dash.example.com"]).await;
    let own = format!("Origin: http://{}", dashboard.address);
    for (headers, status) in [
        (&[&*own][..], 200),
        (&["Origin: https://dash.example.com"], 200),
        (&["Sec-Fetch-Site: same-origin"], 200),
        (&["Origin: http://127.0.0.1:1"], 403),
        (&["Origin: http://evil.example.com"], 403),
        (&["Origin: null"], 403),
        (&[&*own, "Origin: http://evil.example.com"], 403),
        (&["Sec-Fetch-Site: cross-site"], 403),
        // Another port of this machine is the same site.
        (&["Sec-Fetch-Site: same-site"], 403),
    ] {
        let response = dashboard.send("GET", "/api/session", headers, "").await;
        assert_eq!(response.status, status, "{headers:?}: {response:?}");
    }
    // A link of another page leads here.
    assert_eq!(dashboard.send("GET", "/", &["Sec-Fetch-Site: cross-site"], "").await.status, 200);
}

async fn a_request_that_changes_something_needs_the_secret_header(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let client = fixture.client("holder").await;
    let guard = client.lock("orders").lock().await.unwrap();
    let mut events = dashboard.events().await;
    let body = request(&mut events, "orders", guard.owner_id().as_str(), "exclusive").await.to_string();
    let secret = dashboard.csrf_header().await;
    let wrong = format!("X-Turnlock-Dashboard: {}", "0".repeat(64));
    let other = "Origin: http://evil.example.com";
    let text = "Content-Type: text/plain";
    for headers in [&[][..], &[&*wrong], &[text], &[&*secret, other], &["Cookie: X-Turnlock-Dashboard=1"]] {
        for path in ["/api/unlock", "/api/doctor"] {
            let response = dashboard.send("POST", path, headers, &body).await;
            assert_eq!(response.status, 403, "{headers:?}: {response:?}");
        }
    }
    assert!(client.lock("orders").is_locked().await.unwrap());
    assert_eq!(dashboard.send("POST", "/api/unlock", &[&*secret], &body).await.status, 200);
    assert!(!client.lock("orders").is_locked().await.unwrap());
    let restarted = Dashboard::start(fixture.url(), 0, &["--allow-unlock"]).await;
    let response = restarted.send("POST", "/api/unlock", &[&*secret], &body).await;
    assert_eq!(response.status, 403, "the secret is one of the process");
}

async fn without_the_flag_no_request_releases_a_lock(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let client = fixture.client("holder").await;
    let guard = client.lock("orders").lock().await.unwrap();
    let body = json!({ "name": "orders", "kind": "lock", "owner": guard.owner_id().as_str() });
    assert_eq!(dashboard.post("/api/unlock", &body).await.status, 404);
    let secret = dashboard.csrf_header().await;
    let mut events = dashboard.events().await;
    events.until(|name, _| name == "snapshot").await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in ["/", "/api/session", "/api/events", "/api/holds/=orders", "/api/unlock"] {
            let response = dashboard.send(method, path, &[&*secret], &body.to_string()).await;
            assert!(matches!(response.status, 404 | 405), "{method} {path}: {response:?}");
        }
    }
    assert_eq!(dashboard.get("/api/session").await.json()["allow_unlock"], false);
    assert!(client.lock("orders").is_locked().await.unwrap());
    guard.unlock().await.expect("the lock is still held");
}

async fn another_address_needs_a_token(fixture: Fixture) {
    let short = fixture.file("short", "0123456789\n");
    let spaced = fixture.file("spaced", "0123456789 abcdefgh\n");
    let missing = format!("{short}.missing");
    let certificates = Certificates::new(&["localhost"]);
    let [cert, key] = [certificates.server_cert_file(), certificates.server_key_file()];
    let [cert, key] = [cert.to_str().unwrap(), key.to_str().unwrap()];
    for (arguments, expected) in [
        (&["--listen", "0.0.0.0:0"][..], "needs --token-file"),
        (&["--listen", "[::]:0"], "needs --token-file"),
        (&["--token-file", &*short], "at least 16"),
        (&["--token-file", &*spaced], "without spaces"),
        (&["--token-file", &*missing], "cannot be read"),
        (&["--listen", "localhost"], "give an IP address"),
        (&["--host", "http://a"], "give a host name"),
        (&["--tls-cert", "a"], "--tls-key"),
        // Who can read along is not who may connect.
        (&["--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key], "needs --token-file"),
    ] {
        let output = program(fixture.url(), arguments).output();
        let output = within(AWHILE, "the program ends", output).await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(64) && text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("0123456789"), "a token is not printed: {text}");
    }
    let token = fixture.file("token", "0123456789abcdef\n");
    let dashboard = fixture.dashboard(&["--listen", "0.0.0.0:0", "--token-file", &*token]).await;
    let host = format!("Host: 127.0.0.1:{}", dashboard.address.port());
    assert_eq!(dashboard.send("GET", "/api/session", &[&*host], "").await.status, 401);
}

async fn the_token_opens_every_route_and_a_session_replaces_it(fixture: Fixture) {
    let token = fixture.file("token", "0123456789abcdef\n");
    let dashboard = fixture.dashboard(&["--token-file", &*token, "--allow-unlock"]).await;
    assert_eq!(dashboard.get("/").await.status, 200, "the page asks for the token");
    for path in DATA {
        for headers in [
            &[][..],
            &["Authorization: Bearer 0123456789abcdeX"],
            &["Authorization: Basic 0123456789abcdef"],
            &["Cookie: turnlock_dashboard=0123456789abcdef"],
        ] {
            let response = dashboard.send("GET", path, headers, "").await;
            assert_eq!(response.status, 401, "{path} {headers:?}: {response:?}");
            assert!(!response.body.contains("0123456789"), "{response:?}");
        }
    }
    for path in ["/api/login", "/api/doctor", "/api/unlock"] {
        assert_eq!(dashboard.send("POST", path, &[], "{}").await.status, 401, "{path}");
    }
    let bearer = "Authorization: Bearer 0123456789abcdef";
    assert_eq!(dashboard.send("GET", "/api/session", &[bearer], "").await.status, 200);
    let login = dashboard.send("POST", "/api/login", &[bearer], "").await;
    assert_eq!(login.status, 204, "{login:?}");
    let cookie = login.header("set-cookie").expect("a cookie");
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains("Secure"), "without TLS, a browser would not send it: {cookie}");
    for (scheme, is_secure) in [("http", false), ("https", true)] {
        // That of a proxy with TLS, or not.
        let origin = format!("Origin: {scheme}://{}", dashboard.address);
        let login = dashboard.send("POST", "/api/login", &[bearer, &*origin], "").await;
        assert_eq!(login.header("set-cookie").unwrap().ends_with("; Secure"), is_secure, "{login:?}");
    }
    assert!(!cookie.contains("0123456789abcdef"), "the cookie is not the token: {cookie}");
    let cookie = format!("Cookie: other=1; {}", cookie.split(';').next().unwrap());
    assert_eq!(dashboard.send("GET", "/api/session", &[&*cookie], "").await.status, 200);
    let response = dashboard.send("POST", "/api/unlock", &[&*cookie], "{}").await;
    assert_eq!(response.status, 403, "a cookie alone changes nothing");
}

async fn the_page_is_served_by_tls(fixture: Fixture) {
    let certificates = Certificates::new(&["localhost", "127.0.0.1"]);
    let [cert, key] = [certificates.server_cert_file(), certificates.server_key_file()];
    let token = fixture.file("token", "0123456789abcdef\n");
    let arguments = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let dashboard = fixture.dashboard(&[&arguments[..], &["--token-file", &token]].concat()).await;
    assert!(dashboard.url().starts_with("https://"), "{}", dashboard.url());
    let curl = async |arguments: &[&str], path: &str| {
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["--silent", "--fail", "--noproxy", "*", "--cacert"]).arg(certificates.ca_file());
        curl.args(["--header", "Authorization: Bearer 0123456789abcdef"]).args(arguments);
        curl.arg(format!("{}{path}", dashboard.url()));
        String::from_utf8(within(AWHILE, "curl", curl.output()).await.unwrap().stdout).unwrap()
    };
    let session: serde_json::Value = serde_json::from_str(&curl(&[], "api/session").await).unwrap();
    assert_eq!(session["store"], fixture.url());
    let login = curl(&["--request", "POST", "--include"], "api/login").await.to_lowercase();
    let cookie = login.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    assert!(cookie.ends_with("; secure"), "{cookie}");
    let plain = http::send(dashboard.address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(plain.status, 0, "no plain HTTP: {plain:?}");
    let output =
        program(fixture.url(), &["--tls-cert", key.to_str().unwrap(), "--tls-key", cert.to_str().unwrap()]);
    let output = within(AWHILE, "the program ends", { output }.output()).await.unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

async fn a_signal_ends_it_with_exit_code_0(fixture: Fixture) {
    for signal in ["-INT", "-TERM"] {
        let dashboard = fixture.dashboard(&[]).await;
        let mut events = dashboard.events().await;
        events.until(|name, _| name == "snapshot").await;
        assert_eq!(dashboard.stop(signal).await, Some(0), "{signal}");
        while events.next().await.is_some() {}
    }
}

async fn a_password_is_never_shown(mut fixture: Fixture) {
    let password = "s3cret-Passw0rd";
    let set = ["CONFIG", "SET", "requirepass", password];
    let _: String = fixture.server().query(&set).await.unwrap();
    let url = fixture.url().replace("redis://", &format!("redis://:{password}@"));
    let dashboard = Dashboard::start(&url, 0, &[]).await;
    let session = dashboard.get("/api/session").await;
    assert!(session.status == 200 && !session.body.contains(password), "{session:?}");
    assert!(dashboard.line.contains("redis://") && !dashboard.line.contains(password), "{}", dashboard.line);
    let mut events = dashboard.events().await;
    let snapshot = events.until(|name, _| name == "snapshot").await;
    assert!(!snapshot.to_string().contains(password));
    fixture.server().stop().await;
    let outage = events.until(|name, _| name == "outage").await;
    assert!(
        !outage["error"].as_str().unwrap().is_empty() && !outage.to_string().contains(password),
        "{outage}"
    );
    for path in ["/", "/api/session", "/api/doctor"] {
        let response = dashboard.get(path).await;
        assert!(response.status == 200 && !format!("{response:?}").contains(password), "{response:?}");
    }
    let examined = dashboard.post("/api/doctor", &json!({})).await;
    assert!(!examined.body.contains(password), "{examined:?}");
    // A second one cannot connect.
    let output =
        within(AWHILE, "the program ends", program(&url, &["--listen", "127.0.0.1:0"]).output()).await;
    let output = output.unwrap();
    assert!(
        !output.status.success() && !String::from_utf8_lossy(&output.stderr).contains(password),
        "{output:?}"
    );
}
