use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    client::Client,
    script::{Script, answer, failure, refused_connection, token},
};

/// Writes down what it is told.
#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn watching(client: &Client) -> (Client, Arc<Self>) {
        let diary = Arc::new(Self::default());
        (client.observed_by(Arc::clone(&diary) as _), diary)
    }

    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Diary {
    fn sends(&self, route: &'static Route) {
        self.write(format!("{} {}", route.method(), route.path()));
    }

    fn attempted(&self, Attempted { ending, .. }: Attempted) {
        let status = if let Ending::Answered(status) = ending { status.as_u16() } else { 0 };
        self.write(ending.word().map_or_else(|| status.to_string(), str::to_owned));
    }

    fn circuit(&self, state: CircuitState) {
        self.write(format!("{state:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_seen_with_its_route_as_a_template() {
    let script = Script::new([answer(503, ""), answer(200, "[]")]);
    let (client, diary) = Diary::watching(&script.client());
    client.list_groups(uuid::Uuid::nil()).await.unwrap();
    let route = "GET /api/v2/organizations/{organization}/groups";
    assert_eq!(diary.lines(), ["Closed", route, "503", route, "200"]);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_status_has_a_word() {
    let broken = TransportError::Broken(format!("no secret {}", token()));
    let too_large = TransportError::TooLarge { limit: 1 };
    for (error, word) in [(TransportError::TimedOut, "timeout"), (broken, "broken"), (too_large, "too_large")]
    {
        let script = Script::new([failure(error)]);
        let (client, diary) = Diary::watching(&script.client());
        client.list_organizations().await.unwrap_err();
        assert_eq!(diary.lines()[2], word);
        assert!(!format!("{:?}", diary.lines()).contains(&token()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_circuit_is_told_of_when_it_becomes_another_and_what_it_stops_is_counted() {
    let script = Script::new((0..6).map(|_| refused_connection()).chain([answer(200, "[]")]));
    let (client, diary) = Diary::watching(&script.client());
    while !diary.lines().contains(&"circuit_open".to_owned()) {
        client.list_organizations().await.unwrap_err();
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    client.list_organizations().await.unwrap_err();
    tokio::time::advance(Duration::from_secs(2)).await;
    client.list_organizations().await.unwrap();
    let told = diary.lines();
    let states: Vec<&str> =
        told.iter().map(String::as_str).filter(|it| ["Closed", "Open", "Trial"].contains(it)).collect();
    assert_eq!(states, ["Closed", "Open", "Trial", "Open", "Trial", "Closed"], "{told:?}");
    assert_eq!(told.iter().filter(|it| *it == "unreachable").count(), 6, "{told:?}");
}

#[tokio::test]
async fn an_attempt_whose_caller_goes_away_is_not_forgotten() {
    #[derive(Debug)]
    struct Silent;
    impl crate::Transport for Silent {
        fn send(
            &self,
            _: http::Request<bytes::Bytes>,
        ) -> crate::transport::BoxFuture<'_, Result<http::Response<bytes::Bytes>, TransportError>> {
            Box::pin(std::future::pending())
        }
    }
    let options = crate::ClientOptions {
        url: "https://coder.test".parse().unwrap(),
        token: None,
        transport: Arc::new(Silent),
    };
    let (client, diary) = Diary::watching(&Client::new(options).unwrap());
    let mut call = Box::pin(client.build_info());
    assert!(
        std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending()))
            .await
    );
    drop(call);
    assert_eq!(diary.lines(), ["Closed", "GET /api/v2/buildinfo", "abandoned"]);
}
