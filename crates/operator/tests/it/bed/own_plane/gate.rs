//! A gate before a server of TCP: closed, it is as if the server were not there.

use std::sync::Arc;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

pub(super) struct Gate {
    pub(super) address: String,
    is_open: watch::Sender<bool>,
    is_served: watch::Receiver<bool>,
}

impl Gate {
    pub(super) async fn before(server: &str) -> Self {
        // An address of its own, so that nobody takes its port while it is closed.
        let [a, b, ..] = *uuid::Uuid::new_v4().as_bytes();
        let address = format!("127.77.{a}.{}:5432", b.max(1));
        let is_open = watch::Sender::new(true);
        let (served, mut is_served) = watch::channel(false);
        tokio::spawn(serve(address.clone(), Arc::from(server), is_open.subscribe(), served));
        is_served.wait_for(|it| *it).await.unwrap();
        Self { address, is_open, is_served }
    }

    /// Ends every connection, and refuses new ones.
    pub(super) async fn close(&mut self) {
        self.is_open.send_replace(false);
        self.is_served.wait_for(|it| !it).await.unwrap();
    }

    pub(super) async fn open(&mut self) {
        self.is_open.send_replace(true);
        self.is_served.wait_for(|it| *it).await.unwrap();
    }
}

async fn serve(
    address: String,
    server: Arc<str>,
    mut is_open: watch::Receiver<bool>,
    served: watch::Sender<bool>,
) {
    while is_open.wait_for(|it| *it).await.is_ok() {
        let listener = TcpListener::bind(&address).await.unwrap();
        served.send_replace(true);
        loop {
            let mut closes = is_open.clone();
            tokio::select! {
                Ok((client, _)) = listener.accept() => drop(tokio::spawn(pass(client, Arc::clone(&server), is_open.clone()))),
                _ = closes.wait_for(|it| !it) => break,
            }
        }
        drop(listener);
        served.send_replace(false);
    }
}

async fn pass(mut client: TcpStream, server: Arc<str>, mut is_open: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(&*server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = is_open.wait_for(|it| !it) => {}
    }
}
