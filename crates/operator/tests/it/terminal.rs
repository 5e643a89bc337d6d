//! A person at a terminal: what is read there, what is typed, and who is interrupted.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// Far more than anything here takes, also where everything is slow; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_mins(4);

/// A command whose standard input and error are a terminal.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Receiver<String>,
    /// What has been on the screen.
    pub(crate) seen: String,
    child: Child,
}

impl Terminal {
    pub(crate) fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        // Not the terminal of this process, or its interruptions would be ours.
        let no_control = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
        let slave = OpenOptions::new().read(true).write(true).custom_flags(no_control).open(name).unwrap();
        command.stdin(slave.try_clone().unwrap()).stderr(slave).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        drop(command);
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().unwrap();
        let (sender, screen) = mpsc::channel();
        // Reading ends with an error once nobody has the terminal open any more.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).is_err() {
                    break;
                }
            }
        });
        Self { keyboard, screen, seen: String::new(), child }
    }

    /// Waits until these words are on the screen.
    pub(crate) fn wait_for(&mut self, words: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.seen.contains(words) {
            let left = deadline.saturating_duration_since(Instant::now());
            let next = self.screen.recv_timeout(left);
            assert!(next.is_ok(), "{next:?}: {words:?} is not in:\n{}", self.seen);
            self.seen.push_str(&next.unwrap());
        }
    }

    pub(crate) fn type_line(&mut self, text: &str) {
        writeln!(self.keyboard, "{text}").unwrap();
    }

    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the end: the exit code, standard output, and the screen.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let mut output = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        let status = self.child.wait().unwrap();
        while let Ok(text) = self.screen.recv_timeout(LIMIT) {
            self.seen.push_str(&text);
        }
        (status.code(), output, std::mem::take(&mut self.seen))
    }
}

/// A test that fails leaves no command behind that waits for an answer.
impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
