//! Chromium, driven by chromedriver over the WebDriver protocol: as much of it as these tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

/// Key codes of WebDriver.
pub const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";

/// How long something may take to show: machines that test are busy, and a script that is lost with its page may take
/// 10 s of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one window; it ends with this value.
pub struct Browser {
    driver: Child,
    session: String,
    http: reqwest::Client,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// The browser, where the test runner found a driver for one.
    pub async fn start() -> Option<Self> {
        let driver = std::env::var_os("LATTICE_TEST_CHROMEDRIVER")?;
        let profile = tempfile::tempdir().unwrap();
        let mut driver =
            Command::new(driver).arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let port = port_of(&mut driver);
        let http = reqwest::Client::new();
        let data = format!("--user-data-dir={}", profile.path().display());
        let mut args = vec![data.as_str()];
        args.extend("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --force-device-scale-factor=1 --window-size=1400,1000".split(' '));
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "timeouts": {"script": 10_000},
            "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": {"args": args}}}});
        let base = format!("http://127.0.0.1:{port}/session");
        let answer: Value = http.post(&base).json(&wanted).send().await.unwrap().json().await.unwrap();
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}"));
        Some(Self { session: format!("{base}/{id}"), driver, http, _profile: profile })
    }

    async fn answer(&self, path: &str, body: &Value) -> Value {
        let answer = self.http.post(format!("{}/{path}", self.session)).json(body).send().await.unwrap();
        let mut answer: Value = answer.json().await.unwrap();
        answer["value"].take()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let value = self.answer(path, &body).await;
        assert!(value.get("error").is_none(), "{path} {body}: {value}");
        value
    }

    pub async fn open(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    /// The value of a script's `return`.
    pub async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// Waits in the browser until the expression is true.
    ///
    /// It looks in rounds of half a second: a page that goes away takes the script that looks with it.
    pub async fn until(&self, condition: &str) {
        let script = format!(
            "const done = arguments[0], end = Date.now() + 500;
             const look = () => {{ let is = false; try {{ is = Boolean({condition}); }} catch {{}}
                 if (is || Date.now() > end) done(is); else setTimeout(look, 40); }}; look();"
        );
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let asked = self.answer("execute/async", &json!({"script": script, "args": []})).await;
            if asked == Value::Bool(true) {
                return;
            }
        }
        let page = self.run("return location.href + '\\n' + document.body.innerText").await;
        panic!("never came: {condition}\n{}\n{:?}", page.as_str().unwrap_or_default(), self.complaints().await);
    }

    pub async fn click(&self, selector: &str) {
        let element = self.post("element", json!({"using": "css selector", "value": selector})).await;
        let id = element.as_object().and_then(|map| map.values().next()?.as_str()).unwrap();
        self.post(&format!("element/{id}/click"), json!({})).await;
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub async fn keys(&self, keys: &str) {
        let press = |key: char| {
            [json!({"type": "keyDown", "value": key.to_string()}), json!({"type": "keyUp", "value": key.to_string()})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.post("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})).await;
    }

    /// Pretends a width in pixels, with a touch screen's layout below 600.
    pub async fn width(&self, width: u32, height: u32) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.cdp("Emulation.setDeviceMetricsOverride", params).await;
    }

    /// Pretends a preference: `prefers-color-scheme`, `dark`.
    pub async fn prefer(&self, features: &[(&str, &str)]) {
        let features: Vec<Value> = features.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        self.cdp("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    async fn cdp(&self, command: &str, params: Value) -> Value {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": params})).await
    }

    /// Writes what is seen into the folder for screenshots.
    pub async fn screenshot(&self, name: &str) {
        let answer: Value =
            self.http.get(format!("{}/screenshot", self.session)).send().await.unwrap().json().await.unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(answer["value"].as_str().unwrap()).unwrap();
        let folder = std::env::var_os("LATTICE_SCREENSHOTS")
            .map_or_else(|| std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots"), Into::into);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name).with_extension("png"), bytes).unwrap();
    }

    /// What the browser logged as wrong: scripts that failed, things that the policy refused.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.post("se/log", json!({"type": "browser"})).await;
        let entries = log.as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry["level"] == "SEVERE")
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Ends it where the test is done with it, and sees that it ends.
    pub async fn quit(self) {
        let ended = tokio::task::spawn_blocking(move || drop(self)).await;
        assert!(ended.is_ok(), "the browser ends");
    }

    /// Has the driver close the browser: killing the driver alone leaves it behind.
    fn close(&self) -> std::io::Result<()> {
        let (host, path) = self.session.trim_start_matches("http://").split_once('/').unwrap_or_default();
        let mut stream = std::net::TcpStream::connect(host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        // The answer comes once the browser is closed; the connection itself stays open.
        stream.read(&mut [0; 512]).map(drop)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.close();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// `ChromeDriver was started successfully on port 43817.`
fn port_of(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let told = lines.by_ref().map_while(Result::ok).find(|line| line.contains("started successfully on port")).unwrap();
    // Keeps reading, or the driver blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    told.trim_end_matches('.').rsplit(' ').next().unwrap().parse().unwrap()
}
