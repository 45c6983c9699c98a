use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use turnlock_testkit::{TempDir, eventually, within};

use crate::{AWHILE, http};

/// A browser without a window, driven by `WebDriver`, with a new profile.
#[derive(Debug)]
pub(crate) struct Browser {
    client: Client,
    session: String,
    driver: SocketAddr,
    // Dropped before the profile, which its processes use.
    _process: DriverProcess,
    _profile: TempDir,
}

/// The driver, in a process group with the browser that it starts.
#[derive(Debug)]
struct DriverProcess(Child);

impl Drop for DriverProcess {
    /// Ends the driver and the browser, also if the case fails or the browser does not start.
    fn drop(&mut self) {
        let Some(group) = self.0.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) else { return };
        let _ = kill_process_group(group, Signal::KILL);
        let start = Instant::now();
        // A member that the kernel has not ended yet could still write to the profile.
        while start.elapsed() < Duration::from_secs(10) {
            let _ = self.0.try_wait();
            if test_kill_process_group(group).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Browser {
    /// Why there is no browser on this machine, if there is none.
    pub(crate) fn missing() -> Option<String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
        let missing = ["chromium", "chromedriver"].into_iter().find(|program| !is_there(program))?;
        Some(format!("{missing} is not installed"))
    }

    /// Starts a browser and opens a page.
    pub(crate) async fn open(url: &str) -> Self {
        let profile = TempDir::new();
        let mut command = Command::new("chromedriver");
        command.args(["--port=0", "--allowed-ips=127.0.0.1"]).kill_on_drop(true).stdin(Stdio::null());
        // Files of the browser are in the directory of the profile, and go with it.
        command.env("TMPDIR", profile.path()).env("HOME", profile.path());
        command.stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut process = DriverProcess(command.spawn().unwrap());
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let port = within(AWHILE, "the driver starts", async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the port of the driver");
                if let Some((_, port)) = line.split_once("successfully on port ") {
                    return port.trim_end_matches('.').parse::<u16>().unwrap();
                }
            }
        })
        .await;
        // The driver must not block on its output.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1200,760",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().join("profile").display()));
        let capabilities = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else { unreachable!() };
        let driver = SocketAddr::from(([127, 0, 0, 1], port));
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities);
        let client = within(AWHILE, "the browser starts", client.connect(&format!("http://{driver}"))).await;
        let client = client.unwrap();
        let session = client.session_id().await.unwrap().unwrap();
        let browser = Self { client, session, driver, _process: process, _profile: profile };
        browser.client.goto(url).await.unwrap();
        browser
    }

    /// Evaluates an expression; if it is a promise, what that resolves to.
    pub(crate) async fn eval(&self, expression: &str) -> Value {
        let script = format!("return ({expression})");
        let value = within(AWHILE, expression, self.client.execute(&script, Vec::new())).await;
        value.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// The text of an element that is there; empty if it is not.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let expression = format!("document.querySelector({})?.textContent ?? ''", json!(selector));
        self.eval(&expression).await.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let what = format!("{expression} in the browser");
        // The page checks it for a second: a request for each check would keep a core busy.
        let check = format!(
            "return new Promise((done) => {{
                const end = performance.now() + 1_000;
                const check = () => (({expression}) === true ? done(true) : performance.now() > end ? done(false) : setTimeout(check, 20));
                check();
            }})"
        );
        // An error is often a page that is loaded meanwhile.
        let is_true =
            || async { self.client.execute(&check, Vec::new()).await.is_ok_and(|value| value == true) };
        eventually(&what, AWHILE, is_true).await;
    }

    /// Waits until the page is live and the list has this number of locks.
    pub(crate) async fn until_locks(&self, count: usize) {
        self.until("document.querySelector('#connection')?.dataset.state === 'live'").await;
        let text = if count == 1 { "1 lock".to_owned() } else { format!("{count} locks") };
        self.until(&format!("document.querySelector('#count')?.textContent.replace(',', '') === '{text}'"))
            .await;
    }

    /// Types keys into the element that has the focus.
    pub(crate) async fn keys(&self, keys: &str) {
        let is_typed = async || match self.client.active_element().await {
            Ok(element) => element.send_keys(keys).await.is_ok(),
            Err(_) => false,
        };
        eventually("the keys are typed", AWHILE, is_typed).await;
    }

    /// Clicks an element once it is there. It may be replaced just before the click.
    pub(crate) async fn click(&self, selector: &str) {
        let is_clicked = async || match self.client.find(Locator::Css(selector)).await {
            Ok(element) => element.click().await.is_ok(),
            Err(_) => false,
        };
        eventually(&format!("a click on {selector}"), AWHILE, is_clicked).await;
    }

    /// Follows a link inside the page.
    pub(crate) async fn go(&self, hash: &str) {
        self.eval(&format!("(location.hash = {}, true)", json!(hash))).await;
    }

    /// Makes the screen another size.
    pub(crate) async fn set_size(&self, width: u32, height: u32, is_mobile: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the colour scheme of the system: `dark` or `light`.
    pub(crate) async fn set_scheme(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Sends a command of the `DevTools` protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.driver_request("goog/cdp/execute", &body).await
    }

    /// What the console of the page has at the level of an error, such as a violation of the security policy.
    pub(crate) async fn console_errors(&self) -> Vec<String> {
        let entries = self.driver_request("se/log", &json!({ "type": "browser" })).await;
        let severe = entries.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    async fn driver_request(&self, path: &str, body: &Value) -> Value {
        let (body, driver, session) = (body.to_string(), self.driver, &self.session);
        let request = format!(
            "POST /session/{session}/{path} HTTP/1.1\r\nHost: {driver}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = http::send(driver, &request).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.json()["value"].take()
    }
}
