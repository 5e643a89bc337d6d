use super::*;

const ORGANIZATIONS: &str = "/api/v2/organizations";

/// When each of so many requests may be sent by a client that always has one to send.
fn greedy(path: &str, share: Share, requests: usize) -> Vec<Duration> {
    let start = Instant::now();
    let mut window = Window::of_path(path);
    let mut now = start;
    (0..requests)
        .map(|_| {
            now = window.permit(share, now);
            now - start
        })
        .collect()
}

/// The most requests that any sixty seconds have.
fn worst_minute(path: &str, share: Share) -> usize {
    let sent = greedy(path, share, 3000);
    let within = |first: &Duration| sent.iter().filter(|it| *it >= first && **it < *first + WINDOW).count();
    sent.iter().map(within).max().unwrap()
}

#[test]
fn any_sixty_seconds_have_at_most_the_share_of_the_limit() {
    assert_eq!(worst_minute(ORGANIZATIONS, Share::Supplied), 256);
    assert_eq!(worst_minute(ORGANIZATIONS, Share::OwnAccount), 460);
    assert_eq!(worst_minute("/api/v2/users/login", Share::Supplied), 30);
    assert_eq!(worst_minute("/api/v2/files", Share::Supplied), 6);
    assert_eq!(worst_minute("/coder/api/v2/files/1", Share::OwnAccount), 10, "a prefix changes nothing");
}

#[test]
fn a_burst_may_use_the_whole_share_at_once() {
    let sent = greedy(ORGANIZATIONS, Share::Supplied, 257);
    assert_eq!((sent[255], sent[256]), (Duration::ZERO, WINDOW));
}

#[test]
fn another_limit_is_learnt_from_the_headers_and_a_fixed_one_only_when_it_is_lower() {
    let learn = |path: &str, limit| {
        let mut window = Window::of_path(path);
        let allowance = Allowance { limit, remaining: limit, reset: WINDOW };
        window.learn(allowance, Share::Supplied, Instant::now());
        window.limit
    };
    assert_eq!(learn(ORGANIZATIONS, 100), 100);
    assert_eq!(learn(ORGANIZATIONS, 9000), 9000);
    assert_eq!(learn("/api/v2/files", 512), 12);
    assert_eq!(learn("/api/v2/files", 4), 4);
    assert_eq!(learn(ORGANIZATIONS, 0), 512, "nonsense is not learnt");
}

#[test]
fn requests_are_spaced_while_the_server_has_little_left_and_more_the_less_it_has() {
    let start = Instant::now();
    let spacing = |remaining, share| {
        let mut window = Window::of_path(ORGANIZATIONS);
        window.permit(share, start);
        window.learn(Allowance { limit: 512, remaining, reset: WINDOW }, share, start);
        window.permit(share, start) - start
    };
    assert_eq!(spacing(257, Share::Supplied), Duration::ZERO);
    assert_eq!(spacing(256, Share::Supplied), WINDOW / 256);
    assert_eq!(spacing(64, Share::Supplied), WINDOW / 256 * 4);
    assert_eq!(spacing(53, Share::OwnAccount), Duration::ZERO);
    assert_eq!(spacing(52, Share::OwnAccount), WINDOW / 460);
    let mut window = Window::of_path(ORGANIZATIONS);
    window.permit(Share::Supplied, start);
    window.learn(Allowance { limit: 512, remaining: 3, reset: WINDOW }, Share::Supplied, start);
    window.learn(Allowance { limit: 512, remaining: 500, reset: WINDOW }, Share::Supplied, start);
    assert_eq!(window.permit(Share::Supplied, start), start, "there is enough again");
}

/// coderd weighs the window before: a share that fits into each minute may not fit into its estimate.
#[test]
fn the_servers_weighted_count_is_not_exceeded_by_an_account_of_our_own() {
    const MINUTE: u128 = 60_000;
    let start = Instant::now();
    let mut window = Window::of_path(ORGANIZATIONS);
    let (mut now, mut previous, mut current, mut minute) = (start, 0, 0, 0);
    for _ in 0..3000 {
        now = window.permit(Share::OwnAccount, now);
        // The server's minutes begin in the middle of ours.
        let elapsed = (now - start + WINDOW / 2).as_millis();
        if elapsed / MINUTE > minute {
            previous = if elapsed / MINUTE == minute + 1 { current } else { 0 };
            (minute, current) = (elapsed / MINUTE, 0);
        }
        current += 1;
        let estimate = (previous * (MINUTE - elapsed % MINUTE)).div_ceil(MINUTE) + current;
        let remaining = u32::try_from(512_u128.checked_sub(estimate).unwrap()).unwrap();
        assert!(remaining > 0, "after {:?}", now - start);
        window.learn(Allowance { limit: 512, remaining, reset: WINDOW }, Share::OwnAccount, now);
    }
}

#[test]
fn no_request_is_sent_before_the_reset_when_none_is_left() {
    let now = Instant::now();
    let mut window = Window::of_path(ORGANIZATIONS);
    let allowance = Allowance { limit: 512, remaining: 0, reset: Duration::from_secs(7) };
    window.learn(allowance, Share::Supplied, now);
    assert_eq!(window.permit(Share::Supplied, now), now + Duration::from_secs(7));
}

#[test]
fn a_limit_of_one_still_lets_one_through() {
    let now = Instant::now();
    let mut window = Window::of_path(ORGANIZATIONS);
    window.learn(Allowance { limit: 1, remaining: 1, reset: WINDOW }, Share::Supplied, now);
    assert_eq!(window.permit(Share::Supplied, now), now);
    assert_eq!(window.permit(Share::Supplied, now), now + WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_waited_for_and_a_wait_that_is_too_long_is_an_error() {
    let limiter = RateLimiter::default();
    let acquire = |path: &'static str, longest| limiter.acquire(path, Share::Supplied, longest);
    let start = Instant::now();
    for _ in 0..256 {
        acquire(ORGANIZATIONS, LONGEST_WAIT).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(acquire(ORGANIZATIONS, LONGEST_WAIT).await, Err(WINDOW));
    assert_eq!(start.elapsed(), Duration::ZERO, "the error comes at once");
    acquire("/api/v2/groups", LONGEST_WAIT).await.unwrap();
    acquire(ORGANIZATIONS, WINDOW).await.unwrap();
    assert!(start.elapsed() >= WINDOW, "{:?}", start.elapsed());
    limiter.close(ORGANIZATIONS, WINDOW);
    assert_eq!(acquire(ORGANIZATIONS, LONGEST_WAIT).await, Err(WINDOW));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_paths_is_bounded_and_the_busiest_are_kept() {
    let limiter = RateLimiter::default();
    for _ in 0..60 {
        limiter.acquire(ORGANIZATIONS, Share::Supplied, LONGEST_WAIT).await.unwrap();
    }
    for group in 0..5000 {
        let path = format!("/api/v2/groups/{group}");
        limiter.acquire(&path, Share::Supplied, LONGEST_WAIT).await.unwrap();
    }
    let windows = limiter.windows.lock().unwrap();
    assert!(windows.len() <= MOST_PATHS, "{}", windows.len());
    assert!(windows.contains_key(ORGANIZATIONS));
}
