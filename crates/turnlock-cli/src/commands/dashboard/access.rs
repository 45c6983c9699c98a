use std::net::IpAddr;
use std::path::Path;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use turnlock::Error;

use super::secret::Secret;
use crate::dashboard_arguments::DashboardArguments;

/// The header of a request that changes something. Pages of other origins cannot set it.
pub(super) const CSRF_HEADER: &str = "x-turnlock-dashboard";

/// The fewest characters of a token, so that it cannot be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// Who may send requests: the rules for names, origins, the token and the session.
///
/// A page of another origin must not reach the server through the browser of an operator: neither by its address, nor by a
/// name that an attacker resolves to it (DNS rebinding).
#[derive(Debug)]
pub(super) struct Access {
    listen: IpAddr,
    port: u16,
    hosts: Vec<String>,
    token: Option<Secret>,
    /// The value of the cookie that stands for the token.
    session: Secret,
    csrf: Secret,
    is_secure: bool,
}

/// Why a request is refused.
pub(super) type Refusal = (StatusCode, &'static str);

const NO_HOST: Refusal = (StatusCode::BAD_REQUEST, "the request needs one Host header\n");
const OTHER_HOST: Refusal = (
    StatusCode::FORBIDDEN,
    "this name is not allowed: use the address that the dashboard prints, or start it with --host NAME\n",
);
const OTHER_ORIGIN: Refusal = (StatusCode::FORBIDDEN, "requests of other origins are not allowed\n");
const NO_CSRF: Refusal =
    (StatusCode::FORBIDDEN, "the request has no valid X-Turnlock-Dashboard header: reload the page\n");
const NO_TOKEN: Refusal = (StatusCode::UNAUTHORIZED, "the token of the dashboard is missing or wrong\n");

impl Access {
    /// Reads the token.
    ///
    /// # Errors
    ///
    /// If the address is not a loopback address and there is no token.
    pub(super) fn new(arguments: &DashboardArguments) -> anyhow::Result<Self> {
        let listen = arguments.listen.ip();
        let token = arguments.token_file.as_deref().map(read_token).transpose()?;
        if token.is_none() && !listen.is_loopback() {
            let reason = format!("{listen} can be reached by other machines, which needs --token-file");
            return Err(Error::BadConfiguration { setting: "--listen", reason }.into());
        }
        Ok(Self {
            listen,
            port: arguments.listen.port(),
            hosts: arguments.host.clone(),
            token,
            session: Secret::random(),
            csrf: Secret::random(),
            is_secure: arguments.tls_cert.is_some(),
        })
    }

    /// The same for the port that was chosen.
    pub(super) fn on_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Checks everything that does not depend on the body.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        let host = only(headers, HOST.as_str()).ok_or(NO_HOST)?;
        if !self.is_own_host(host) {
            return Err(OTHER_HOST);
        }
        let is_data = request.uri().path().starts_with("/api/");
        if headers.contains_key(ORIGIN) {
            let origin = only(headers, ORIGIN.as_str()).ok_or(OTHER_ORIGIN)?;
            if !self.is_own_origin(origin, host) {
                return Err(OTHER_ORIGIN);
            }
        }
        // Any page may link to this one, but not read its data.
        let site = headers.get("sec-fetch-site").map(axum::http::HeaderValue::as_bytes);
        if is_data && !matches!(site, None | Some(b"same-origin" | b"none")) {
            return Err(OTHER_ORIGIN);
        }
        if is_data && !self.is_authenticated(headers) {
            return Err(NO_TOKEN);
        }
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        let has_header = || headers.get(CSRF_HEADER).is_some_and(|value| self.csrf.matches(value.as_bytes()));
        // Without a cookie, another page has nothing to misuse.
        let is_login = request.uri().path() == "/api/login" && self.has_token(headers);
        if !is_reading && !is_login && !has_header() {
            return Err(NO_CSRF);
        }
        Ok(())
    }

    /// The value of the header of requests that change something.
    pub(super) fn csrf(&self) -> &str {
        self.csrf.reveal()
    }

    /// The cookie for a browser that has sent the token, in a request with these headers.
    ///
    /// Behind a proxy with TLS, only the origin of the page tells that the browser uses TLS.
    pub(super) fn cookie(&self, headers: &HeaderMap) -> String {
        let has_tls = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        let secure = if self.is_secure || has_tls { "; Secure" } else { "" };
        let (name, value) = (self.cookie_name(), self.session.reveal());
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}")
    }

    // Browsers send cookies to all ports of a host.
    fn cookie_name(&self) -> String {
        format!("turnlock_dashboard_{}", self.port)
    }

    fn is_authenticated(&self, headers: &HeaderMap) -> bool {
        self.token.is_none() || self.has_token(headers) || self.has_session(headers)
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        match (&self.token, given) {
            (Some(token), Some(given)) => token.matches(given),
            _ => false,
        }
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(key, value)| key == name && self.session.matches(value.as_bytes()))
    }

    fn is_own_host(&self, authority: &str) -> bool {
        let host = host_of(authority);
        let is_allowed_address = |ip: IpAddr| ip == self.listen || (self.is_local() && ip.is_loopback());
        match address_of(&host) {
            // The wildcard address stands for every address of this machine. An address cannot be rebound.
            Some(ip) => is_allowed_address(ip) || self.listen.is_unspecified(),
            None => (host == "localhost" && self.is_local()) || self.hosts.contains(&host),
        }
    }

    fn is_local(&self) -> bool {
        self.listen.is_loopback() || self.listen.is_unspecified()
    }

    fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let is_web = matches!(scheme, "http" | "https");
        // A proxy may replace the Host header.
        is_web && (authority.eq_ignore_ascii_case(host) || self.hosts.contains(&host_of(authority)))
    }
}

/// The value of a header that must occur once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The host of `host:port`, in lower case.
fn host_of(authority: &str) -> String {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let host =
        authority.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(authority, |(host, _)| host);
    host.to_ascii_lowercase()
}

/// The address that a host is: version 6 in one pair of brackets, version 4 without.
fn address_of(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

fn read_token(path: &Path) -> anyhow::Result<Secret> {
    let fail = |reason: String| Error::BadConfiguration { setting: "--token-file", reason };
    let text = std::fs::read_to_string(path)
        .map_err(|error| fail(format!("{} cannot be read: {error}", path.display())))?;
    let token = text.trim();
    let is_usable = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.chars().count() < MIN_TOKEN_CHARS || !is_usable {
        let reason = format!(
            "{} must contain one token of at least {MIN_TOKEN_CHARS} printable ASCII characters, without spaces",
            path.display()
        );
        return Err(fail(reason).into());
    }
    Ok(Secret::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use axum::http::uri::Authority;
    use axum::http::{HeaderValue, Uri};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn access(listen: &str, hosts: &[&str]) -> Access {
        Access {
            listen: listen.parse().unwrap(),
            port: 7777,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            token: None,
            session: Secret::random(),
            csrf: Secret::random(),
            is_secure: false,
        }
    }

    #[test]
    fn only_own_names_are_hosts() {
        let local = access("127.0.0.1", &["dash.example.com"]);
        for (host, is_own) in [
            ("127.0.0.1:7777", true),
            ("localhost:8888", true),
            ("LOCALHOST", true),
            ("[::1]:7777", true),
            ("127.9.9.9", true),
            ("dash.example.com", true),
            ("Dash.Example.Com:443", true),
            ("evil.example.com", false),
            ("localhost.evil.com:7777", false),
            ("dash.example.com.evil.com", false),
            ("192.0.2.1:7777", false),
            ("127.0.0.1.nip.io:7777", false),
            ("", false),
            ("localhost:7777@evil.com", false),
            ("127.0.0.1[]", false),
            ("[127.0.0.1]", false),
            ("[[::1]]:7777", false),
        ] {
            assert_eq!(local.is_own_host(host), is_own, "{host}");
        }
        let remote = access("192.0.2.1", &[]);
        assert!(remote.is_own_host("192.0.2.1:7777") && !remote.is_own_host("localhost:7777"));
        assert!(access("0.0.0.0", &[]).is_own_host("192.0.2.7:7777"));
        assert!(!access("0.0.0.0", &[]).is_own_host("evil.example.com"));
    }

    #[test]
    fn only_the_own_origin_is_allowed() {
        let local = access("127.0.0.1", &["dash.example.com"]);
        for (origin, is_own) in [
            ("http://127.0.0.1:7777", true),
            ("https://dash.example.com", true),
            ("http://127.0.0.1:9999", false),
            ("http://localhost:7777", false),
            ("http://evil.example.com", false),
            ("null", false),
            ("file://127.0.0.1:7777", false),
            ("http://127.0.0.1:7777.evil.com", false),
        ] {
            assert_eq!(local.is_own_origin(origin, "127.0.0.1:7777"), is_own, "{origin}");
        }
    }

    const TOKEN: &str = "0123456789abcdef";

    /// Text of parts that mean something in a header, and of any others.
    fn text(parts: &'static [&'static str]) -> impl Strategy<Value = String> {
        let part = prop_oneof![6 => select(parts).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
        proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    fn authority() -> impl Strategy<Value = String> {
        text(&[
            "localhost",
            "LocalHost",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "::1",
            "0:0:0:0:0:0:0:1",
            "::ffff:127.0.0.1",
            "dash.example.com",
            "evil.com",
            "192.0.2.1",
            "[",
            "]",
            ":",
            "7777",
            "@",
            ".",
            "-",
            "%",
            "/",
            "?",
            "#",
            "\\",
        ])
    }

    /// Whether a host, as another parser reads it, is one of `access("127.0.0.1", &["dash.example.com"])`.
    fn is_own(host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_name = ["localhost", "dash.example.com"].contains(&&*host.to_ascii_lowercase());
        is_name || address.is_ok_and(|address| address.is_loopback())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_foreign_host_or_origin_is_never_taken_as_the_own(host in authority(), scheme in text(&["http", "https", "ftp", ":", "//", "://"]), other in authority()) {
            let access = access("127.0.0.1", &["dash.example.com"]);
            if access.is_own_host(&host) && let Ok(parsed) = host.parse::<Authority>() {
                prop_assert!(is_own(parsed.host()), "{host} has the host {}", parsed.host());
            }
            for origin in [format!("http://{other}"), format!("{scheme}{other}"), format!("https://{host}")] {
                if access.is_own_host(&host) && access.is_own_origin(&origin, &host) {
                    prop_assert!(origin.starts_with("http://") || origin.starts_with("https://"), "{origin}");
                    if let Ok(parsed) = origin.parse::<Uri>() {
                        prop_assert!(parsed.host().is_some_and(is_own), "{origin} of {host}");
                    }
                }
            }
        }

        #[test]
        fn only_the_token_or_the_session_opens_data(
            values in proptest::collection::vec(text(&[TOKEN, "Bearer", "bearer", "Basic", " ", ";", "=", "turnlock_dashboard_7777", "SESSION", "7"]), 2),
            has_own_host: bool, bytes in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let access = Access { token: Some(Secret::new(TOKEN.to_owned())), ..access("127.0.0.1", &[]) };
            let session = access.session.reveal().to_owned();
            let [authorization, cookie] = &values[..] else { unreachable!() };
            let cookie = cookie.replace("SESSION", &session);
            let mut request = Request::get("/api/session").body(()).unwrap();
            let mut set = |name, bytes: &[u8]| {
                if let Ok(value) = HeaderValue::from_bytes(bytes) {
                    request.headers_mut().append(name, value);
                }
            };
            if has_own_host { set(HOST, b"localhost") } else { set(HOST, &bytes) }
            set(AUTHORIZATION, authorization.as_bytes());
            set(COOKIE, cookie.as_bytes());
            set(COOKIE, &bytes);
            let has_token = *authorization == format!("Bearer {TOKEN}");
            let pair = format!("turnlock_dashboard_7777={session}");
            // A header has no control characters but tabs.
            let is_header = cookie.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
            let has_session = is_header && cookie.split(';').any(|given| given.trim() == pair);
            let is_open = has_own_host && (has_token || has_session);
            prop_assert_eq!(access.check(&request).is_ok(), is_open, "{:?}", request);
        }
    }
}
