//! Random sequences of calls over few names, so that they meet: both sides get the same sequence.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, PASSWORD, Side};

const STEPS: usize = 250;
const NAMES: [&str; 4] = ["one", "One", "two", "three"];
const ADMIN: &str = "walking-admin";

/// A sequence that follows from its seed.
struct Walk {
    random: u64,
    organizations: Vec<String>,
    groups: Vec<String>,
    users: Vec<String>,
}

impl Walk {
    /// The next number below a bound.
    fn below(&mut self, bound: usize) -> usize {
        // The constants are those of Knuth's MMIX generator; its upper bits are the better ones.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % bound
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len())]
    }

    fn who(&mut self) -> &'static str {
        [OWNER, OWNER, OWNER, ADMIN, MEMBER][self.below(5)]
    }

    fn organization(&mut self) -> String {
        let at = self.below(self.organizations.len());
        self.organizations[at].clone()
    }

    fn user(&mut self) -> String {
        let at = self.below(self.users.len());
        self.users[at].clone()
    }

    fn group(&mut self) -> String {
        let at = self.below(self.groups.len());
        self.groups[at].clone()
    }

    fn some_users(&mut self) -> Vec<String> {
        (0..self.below(3)).map(|_| self.user()).collect()
    }
}

pub(super) async fn first_walk(side: &mut Side) {
    walk(side, 1).await;
}

pub(super) async fn second_walk(side: &mut Side) {
    walk(side, 2).await;
}

async fn walk(side: &mut Side, seed: u64) {
    let default = side.default_organization().await;
    let admin = json!({"username": ADMIN, "email": format!("{ADMIN}@sim.test"), "password": PASSWORD,
        "roles": ["user-admin"], "organization_ids": [default]});
    let admin = side.post(OWNER, "/api/v2/users", admin).await.text("id");
    side.sign_in(ADMIN).await;
    let owner = side.get(OWNER, "/api/v2/users/me").await.text("id");
    let organizations = vec![default.clone()];
    let mut walk =
        Walk { random: seed, organizations, groups: vec![default], users: vec![owner, admin.clone()] };
    for _ in 0..STEPS {
        match walk.below(4) {
            0 => organization_step(side, &mut walk).await,
            1 => group_step(side, &mut walk).await,
            2 => user_step(side, &mut walk).await,
            _ => key_step(side, &mut walk).await,
        }
    }
    for name in NAMES {
        side.delete(OWNER, &format!("/api/v2/users/{name}")).await;
    }
    side.delete(OWNER, &format!("/api/v2/users/{admin}")).await;
}

async fn organization_step(side: &mut Side, walk: &mut Walk) {
    let who = walk.who();
    let organization = format!("/api/v2/organizations/{}", walk.organization());
    match walk.below(5) {
        0 => {
            let made = side.post(who, "/api/v2/organizations", json!({"name": walk.name()})).await;
            walk.organizations.extend(made.body["id"].as_str().map(str::to_owned));
        }
        1 => drop(side.patch(who, &organization, json!({"name": walk.name(), "description": who})).await),
        2 => drop(side.delete(who, &organization).await),
        3 => drop(side.get(who, "/api/v2/organizations").await),
        _ => drop(side.get(who, &format!("{organization}/paginated-members")).await),
    }
}

async fn group_step(side: &mut Side, walk: &mut Walk) {
    let who = walk.who();
    let groups = format!("/api/v2/organizations/{}/groups", walk.organization());
    let group = format!("/api/v2/groups/{}", walk.group());
    match walk.below(6) {
        0 | 1 => {
            let made =
                side.post(who, &groups, json!({"name": walk.name(), "quota_allowance": walk.below(9)})).await;
            walk.groups.extend(made.body["id"].as_str().map(str::to_owned));
        }
        2 => {
            let change = json!({"add_users": walk.some_users(), "remove_users": walk.some_users()});
            side.patch(who, &group, change).await;
        }
        3 => drop(side.patch(who, &group, json!({"name": walk.name(), "display_name": "Shown"})).await),
        4 => drop(side.delete(who, &group).await),
        _ => {
            side.get(who, &groups).await;
            side.get(who, &group).await;
        }
    }
}

async fn user_step(side: &mut Side, walk: &mut Walk) {
    let who = walk.who();
    let by_name = format!("/api/v2/users/{}", walk.name());
    let by_id = format!("/api/v2/users/{}", walk.user());
    match walk.below(7) {
        0 | 1 => {
            let name = walk.name();
            let user = json!({"username": name, "email": format!("{}@sim.test", walk.name()), "password": PASSWORD,
                "organization_ids": [walk.organization()]});
            let made = side.post(who, "/api/v2/users", user).await;
            walk.users.extend(made.body["id"].as_str().map(str::to_owned));
        }
        2 => drop(side.delete(who, &by_name).await),
        3 => drop(side.get(who, &by_name).await),
        4 => drop(side.get(who, &by_id).await),
        5 => drop(side.post(who, &format!("{by_id}/keys/tokens"), json!({"token_name": walk.name()})).await),
        _ => drop(side.get(who, &format!("{by_name}/keys/tokens")).await),
    }
}

async fn key_step(side: &mut Side, walk: &mut Walk) {
    let who = walk.who();
    let organization = format!("/api/v2/organizations/{}", walk.organization());
    let keys = format!("{organization}/provisionerkeys");
    match walk.below(5) {
        0 | 1 => drop(side.post(who, &keys, json!({"name": walk.name(), "tags": {"who": who}})).await),
        2 => drop(side.delete(who, &format!("{keys}/{}", walk.name())).await),
        3 => drop(side.get(who, &format!("{keys}/daemons")).await),
        _ => {
            let document = format!("{organization}/settings/idpsync/roles");
            side.patch(
                who,
                &document,
                json!({"field": walk.name(), "mapping": {who: [walk.name()], "x": Value::Null}}),
            )
            .await;
            side.get(who, &document).await;
        }
    }
}
