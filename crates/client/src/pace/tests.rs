use super::*;

const ORGANIZATIONS: &str = "/api/v2/organizations";

/// How many turns are given in each of the first minutes to somebody who always wants one.
fn greedy(path: &str, minutes: u64) -> Vec<usize> {
    let start = Instant::now();
    let mut bucket = Bucket::of_path(path, start);
    let mut given = vec![0; usize::try_from(minutes).unwrap()];
    let mut now = start;
    loop {
        now += bucket.take(now);
        let minute = usize::try_from((now - start).as_secs() / 60).unwrap();
        match given.get_mut(minute) {
            Some(count) => *count += 1,
            None => return given,
        }
    }
}

#[test]
fn no_minute_has_more_than_half_of_what_the_server_allows() {
    let worst = |path| greedy(path, 5).into_iter().max().unwrap();
    assert!((250..=256).contains(&worst(ORGANIZATIONS)), "{}", worst(ORGANIZATIONS));
    assert!((26..=30).contains(&worst("/api/v2/users/login")), "{}", worst("/api/v2/users/login"));
    assert!((5..=6).contains(&worst("/api/v2/files")), "{}", worst("/api/v2/files"));
    assert!((5..=6).contains(&worst("/coder/api/v2/files/1")), "a prefix changes nothing");
}

#[test]
fn a_first_burst_does_not_wait() {
    let now = Instant::now();
    let mut bucket = Bucket::of_path(ORGANIZATIONS, now);
    for _ in 0..64 {
        assert_eq!(bucket.take(now), Duration::ZERO);
    }
    assert!(bucket.take(now) > Duration::ZERO);
}

#[test]
fn another_limit_is_learnt_from_the_headers_and_a_fixed_one_only_when_it_is_lower() {
    let now = Instant::now();
    let learn = |path: &str, limit| {
        let mut bucket = Bucket::of_path(path, now);
        bucket.learn(Allowance { limit, remaining: limit, reset: WINDOW }, now);
        bucket.limit
    };
    assert_eq!(learn(ORGANIZATIONS, 100), 100);
    assert_eq!(learn(ORGANIZATIONS, 9000), 9000);
    assert_eq!(learn("/api/v2/files", 512), 12);
    assert_eq!(learn("/api/v2/files", 4), 4);
    assert_eq!(learn(ORGANIZATIONS, 0), 512, "nonsense is not learnt");
}

#[test]
fn others_who_use_the_same_account_slow_us_down() {
    let now = Instant::now();
    let mut bucket = Bucket::of_path(ORGANIZATIONS, now);
    bucket.learn(Allowance { limit: 512, remaining: 4, reset: WINDOW }, now);
    assert_eq!([bucket.take(now), bucket.take(now)], [Duration::ZERO; 2]);
    assert!(bucket.take(now) > Duration::ZERO);
    let mut bucket = Bucket::of_path(ORGANIZATIONS, now);
    bucket.learn(Allowance { limit: 512, remaining: 0, reset: Duration::from_secs(7) }, now);
    assert_eq!(bucket.take(now), Duration::from_secs(7), "nothing left means until the reset");
}

#[test]
fn a_limit_of_one_still_lets_one_through() {
    let now = Instant::now();
    let mut bucket = Bucket::of_path(ORGANIZATIONS, now);
    bucket.learn(Allowance { limit: 1, remaining: 2, reset: WINDOW }, now);
    assert_eq!(bucket.take(now), Duration::ZERO);
    assert_eq!(bucket.take(now), WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_waited_for_and_a_long_wait_is_told_instead() {
    let pace = Pace::default();
    let start = Instant::now();
    for _ in 0..65 {
        pace.turn(ORGANIZATIONS).await.unwrap();
    }
    assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
    pace.turn("/api/v2/groups").await.unwrap();
    pace.close(ORGANIZATIONS, Duration::from_mins(1));
    let before = Instant::now();
    let told = pace.turn(ORGANIZATIONS).await.unwrap_err();
    assert_eq!((told, before.elapsed()), (Duration::from_mins(1), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_buckets_is_bounded_and_the_emptiest_are_kept() {
    let pace = Pace::default();
    for _ in 0..60 {
        pace.turn(ORGANIZATIONS).await.unwrap();
    }
    for group in 0..5000 {
        pace.turn(&format!("/api/v2/groups/{group}")).await.unwrap();
    }
    let buckets = pace.buckets.lock().unwrap();
    assert!(buckets.len() <= MOST_BUCKETS, "{}", buckets.len());
    assert!(buckets.contains_key(ORGANIZATIONS));
}
