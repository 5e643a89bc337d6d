//! The page of the sandbox in a real browser, steered over `WebDriver`.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    panic::AssertUnwindSafe,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::parts::Browser;

use crate::{
    sandbox::{Sandbox, assert_code, examples},
    support::said,
};

/// Far more than anything here takes; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_mins(1);
/// How often the page is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The key of an element's id in the answers of `WebDriver`.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A driver that is killed when the test is over.
struct Driver {
    process: Child,
    url: String,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Driver {
    fn start(browser: &Browser) -> Self {
        let mut process = browser.driver().arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let started = lines.find(|it| it.contains("started successfully on port"));
        let port = started.unwrap().rsplit(' ').next().unwrap().trim_end_matches('.').to_owned();
        Self { process, url: format!("http://127.0.0.1:{port}/session") }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.request(method, format!("{}{path}", self.url));
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {}", answer["value"]["message"]);
        answer["value"].clone()
    }
}

/// A page in the browser.
struct Page<'a> {
    driver: &'a Driver,
    /// The path of the session.
    session: String,
}

impl<'a> Page<'a> {
    async fn open(driver: &'a Driver, browser: &Browser, url: &str) -> Self {
        let options = json!({
            "binary": browser.chromium,
            // A container has neither namespaces for the sandbox of Chromium nor much shared memory.
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                "--no-proxy-server", "--window-size=1200,1400"],
        });
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let wanted = json!({"capabilities": {"alwaysMatch": wanted}});
        let session = driver.send(Method::POST, "", Some(wanted)).await;
        let page = Self { driver, session: format!("/{}", session["sessionId"].as_str().unwrap()) };
        page.post("/url", json!({"url": url})).await;
        page
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.driver.send(Method::POST, &format!("{}{path}", self.session), Some(body)).await
    }

    /// The value of a script in the page.
    async fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// Waits until the text of an element has all these words. Nobody reloads the page meanwhile.
    async fn wait_for(&self, selector: &str, words: &[&str]) {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(selector));
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = self.script(&script).await.as_str().unwrap().to_owned();
            if words.iter().all(|it| text.contains(it)) {
                return;
            }
            assert!(Instant::now() < deadline, "{selector} has not {words:?}: {text}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.post("/element", json!({"using": "css selector", "value": selector})).await;
        format!("/element/{}", found[ELEMENT].as_str().unwrap())
    }

    async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("{element}/click"), json!({})).await;
    }

    /// Replaces the text of a field as a person does.
    async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("{element}/clear"), json!({})).await;
        self.post(&format!("{element}/value"), json!({"text": text})).await;
    }

    /// Chooses the option with this text.
    async fn choose(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("{element}/value"), json!({"text": text})).await;
        let script =
            format!("return document.querySelector({}).selectedOptions[0].textContent", json!(selector));
        assert_eq!(self.script(&script).await, text);
    }

    /// Keeps a picture of the page beside the other files of the tests.
    async fn screenshot(&self, name: &str) {
        let path = format!("{}/screenshot", self.session);
        let picture = self.driver.send(Method::GET, &path, None).await;
        let picture = STANDARD.decode(picture.as_str().unwrap()).unwrap();
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{} bytes", picture.len());
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), picture).unwrap();
    }

    /// Errors of the page: of its script, and of what its policy refused to load.
    async fn errors(&self) -> Vec<Value> {
        let logged = self.post("/se/log", json!({"type": "browser"})).await;
        logged.as_array().unwrap().iter().filter(|it| it["level"] == "SEVERE").cloned().collect()
    }
}

/// Makes drift on the page, sees it found, healed and attributed.
async fn drift_comes_and_goes(page: &Page<'_>, sandbox: &Sandbox) {
    let examples = examples();
    page.wait_for("#groups", &["developers\t20"]).await;
    page.choose("#quota-group", "alpha/developers").await;
    page.type_into("#quota-value", "1").await;
    page.click("#quota-form button").await;
    page.wait_for(
        "#changes tr:first-child",
        &["a person on this page", "changed group developers in alpha", "quota_allowance: 20 → 1"],
    )
    .await;
    page.wait_for("#groups", &["developers\t1\n"]).await;
    page.screenshot("sandbox-drift.png").await;
    let drifted = sandbox.run(&["verify", "-f", &examples]);
    assert_code(&drifted, 3);
    assert!(said(&drifted).contains("quotaAllowance: 1 -> 20"), "{}", said(&drifted));

    assert_code(&sandbox.run(&["apply", "--yes", "-f", &examples]), 0);
    page.wait_for(
        "#changes tr:first-child",
        &["coder-operator (coder-operator/", "changed group developers in alpha", "quota_allowance: 1 → 20"],
    )
    .await;
    assert_code(&sandbox.run(&["verify", "-f", &examples]), 0);
    page.screenshot("sandbox-healed.png").await;
}

/// Sets a banner that would be an element if it were taken for HTML.
async fn banner_stays_text(page: &Page<'_>, sandbox: &Sandbox) {
    let banner = "<b id=injected>x</b>";
    page.type_into("#banner-value", banner).await;
    page.click("#banner-form button").await;
    page.wait_for("#appearance", &[banner]).await;
    page.wait_for("#changes tr:first-child", &["a person on this page", "changed appearance"]).await;
    assert_eq!(page.script("return document.getElementById('injected')").await, Value::Null);
    assert_code(&sandbox.run(&["verify", "-f", &examples()]), 3);
    assert_eq!(page.errors().await, [Value::Null; 0]);
    let text = page.script("return document.documentElement.outerHTML").await;
    assert!(!text.as_str().unwrap().contains(&sandbox.token), "the page shows the token");
}

#[tokio::test]
async fn drift_made_on_the_page_is_found_healed_and_attributed() {
    let browser = Browser::ensure(&|_| {}).unwrap();
    let sandbox = Sandbox::start(&[]);
    assert_code(&sandbox.run(&["apply", "--yes", "-f", &examples()]), 0);
    let driver = Driver::start(&browser);
    let page = Page::open(&driver, &browser, &sandbox.url).await;
    let tested = AssertUnwindSafe(async {
        drift_comes_and_goes(&page, &sandbox).await;
        banner_stays_text(&page, &sandbox).await;
    });
    let tested = tested.catch_unwind().await;
    // The browser outlives its driver otherwise.
    driver.send(Method::DELETE, &page.session, None).await;
    if let Err(panic) = tested {
        std::panic::resume_unwind(panic);
    }
}
