//! A coderd on a sheet of paper: answers reads from a JSON value, carries writes out on it and remembers them.
//!
//! It knows just what the engine relies on; what coderd really does is checked on the bed.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{Client, ClientOptions, Transport, TransportError, transport::BoxFuture};
use http::{Method, Request, Response};
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

/// Coder's names of the licensed features that the kinds need.
const FEATURES: [&str; 7] = [
    "appearance",
    "custom_roles",
    "external_provisioner_daemons",
    "multiple_organizations",
    "service_accounts",
    "template_rbac",
    "user_role_management",
];

pub(crate) const DEPLOYMENT: &str = "00000000-0000-4000-8000-00000000dddd";

/// A write as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// The sheet.
#[derive(Debug)]
pub(crate) struct Sheet {
    state: Mutex<Value>,
    asked: Mutex<Vec<String>>,
    writes: Mutex<Vec<Write>>,
}

impl Sheet {
    /// What is not on the sheet is as a fresh licensed deployment has it.
    pub(crate) fn new(state: &Value) -> Arc<Self> {
        let mut full = json!({
            "version": "v2.36.0",
            "features": FEATURES,
            "organizations": [],
            "groups": {},
            "members": {},
            "roles": {},
            "keys": {},
            "users": [],
            "me": null,
            "organization_sync": {"field": "", "mapping": {}, "organization_assign_default": true},
            "sharing": {},
            "group_sync": {},
            "role_sync": {},
            "appearance": {"application_name": "", "logo_url": "", "announcement_banners": []},
        });
        for (key, value) in state.as_object().unwrap() {
            assert!(full.get(key).is_some(), "no sheet has {key}");
            full[key] = value.clone();
        }
        Arc::new(Self { state: Mutex::new(full), asked: Mutex::default(), writes: Mutex::default() })
    }

    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let transport: Arc<dyn Transport> = Arc::clone(self) as _;
        let token = Some(SecretString::from("not-a-token"));
        Client::new(ClientOptions { url: "https://coder.test".parse().unwrap(), token, transport }).unwrap()
    }

    pub(crate) fn state(&self) -> Value {
        self.state.lock().unwrap().clone()
    }

    /// Changes a part of the sheet behind everybody's back.
    pub(crate) fn set(&self, key: &str, value: Value) {
        self.state.lock().unwrap()[key] = value;
    }

    /// Everything that was asked, as `METHOD path`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap().clone()
    }
}

impl Transport for Sheet {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        self.asked.lock().unwrap().push(format!("{method} {path}"));
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        if method != Method::GET {
            self.writes.lock().unwrap().push(Write {
                method: method.clone(),
                path: path.clone(),
                body: body.clone(),
            });
        }
        let shown = request.headers().get("coder-provisioner-daemon-key");
        let (status, answer) = match shown {
            Some(value) => prove(&self.state.lock().unwrap(), value.to_str().unwrap()),
            None => answer(&mut self.state.lock().unwrap(), &method, &path, &body),
        };
        let bytes = Bytes::from(serde_json::to_vec(&answer).unwrap());
        let response = Response::builder().status(status);
        // Every answer of coderd has it.
        let response = response.header("x-coder-build-version", "v2.36.1").body(bytes).unwrap();
        Box::pin(async { Ok(response) })
    }
}

fn answer(state: &mut Value, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let segments: Vec<&str> = path.trim_start_matches("/api/v2/").split('/').collect();
    match (method.as_str(), segments.as_slice()) {
        ("GET", ["buildinfo"]) => (200, json!({"version": state["version"], "deployment_id": DEPLOYMENT})),
        // An open-source build.
        ("GET", ["entitlements"]) if state["features"].is_null() => {
            (404, json!({"message": "Route not found."}))
        }
        ("GET", ["entitlements"]) => (200, entitlements(&state["features"])),
        ("GET", ["organizations"]) => (200, state["organizations"].clone()),
        ("POST", ["organizations"]) => create_organization(state, body),
        ("PATCH" | "DELETE", ["organizations", id]) => change(&mut state["organizations"], method, id, body),
        ("GET", ["organizations", id, "groups"]) => (200, list(&state["groups"][*id])),
        ("POST", ["organizations", id, "groups"]) => create_group(state, id, body),
        ("GET", ["groups", id]) => {
            let mut groups =
                state["groups"].as_object().unwrap().values().filter_map(Value::as_array).flatten();
            match groups.find(|it| it["id"] == *id) {
                Some(found) => (200, found.clone()),
                None => {
                    (404, json!({"message": "Resource not found or you do not have access to this resource"}))
                }
            }
        }
        ("PATCH" | "DELETE", ["groups", id]) => change_group(state, method, id, body),
        ("GET", ["organizations", id, "paginated-members"]) => {
            let members = list(&state["members"][*id]);
            (200, json!({"count": members.as_array().unwrap().len(), "members": members}))
        }
        ("GET", ["organizations", id, "members", "roles"]) => (200, list(&state["roles"][*id])),
        (_, ["organizations", id, "members", "roles", rest @ ..]) => {
            roles(&mut state["roles"][*id], method, rest.first().copied(), body)
        }
        (_, ["organizations", id, "provisionerkeys", rest @ ..]) => {
            keys(&mut state["keys"][*id], method, id, rest.first().copied(), body)
        }
        (_, ["settings", "idpsync", "organization"]) => {
            document(&mut state["organization_sync"], method, body, &Value::Null)
        }
        (_, ["organizations", id, "settings", "workspace-sharing"]) => {
            let unset = json!({"shareable_workspace_owners": "everyone"});
            document(&mut state["sharing"][*id], method, body, &unset)
        }
        (_, ["organizations", id, "settings", "idpsync", "groups"]) => {
            let unset = json!({"field": "", "mapping": {}, "regex_filter": null, "auto_create_missing_groups": false});
            document(&mut state["group_sync"][*id], method, body, &unset)
        }
        (_, ["organizations", id, "settings", "idpsync", "roles"]) => {
            document(&mut state["role_sync"][*id], method, body, &json!({"field": "", "mapping": {}}))
        }
        (_, ["users", rest @ ..]) => users(state, method, rest, body),
        (_, ["organizations", home, "members", user]) => {
            join_or_leave(&mut state["users"], method, home, user)
        }
        (_, ["appearance"]) => document(&mut state["appearance"], method, body, &Value::Null),
        _ => (404, json!({"message": "Route not found."})),
    }
}

/// The custom roles of an organization: made, replaced as a whole, deleted by name.
fn roles(slot: &mut Value, method: &Method, name: Option<&str>, body: &Value) -> (u16, Value) {
    let all = slot.as_array_mut().unwrap();
    let is_called = |it: &Value, name: &str| it["name"].as_str().unwrap().eq_ignore_ascii_case(name);
    let found = all.iter().position(|it| is_called(it, name.or_else(|| body["name"].as_str()).unwrap()));
    let role = || {
        let mut role = body.clone();
        merge(&mut role, &json!({"built_in": false, "assignable": true}));
        role
    };
    match (method.as_str(), found) {
        ("POST", Some(_)) => {
            let detail = "duplicate key value violates unique constraint \"custom_roles_unique_key\"";
            (400, json!({"message": "Failed to update role permissions", "detail": detail}))
        }
        ("POST", None) => {
            all.push(role());
            (200, body.clone())
        }
        ("PUT", Some(at)) => {
            all[at] = role();
            (200, body.clone())
        }
        ("DELETE", Some(at)) => {
            all.remove(at);
            (204, Value::Null)
        }
        _ => (404, json!({"message": "Resource not found or you do not have access to this resource"})),
    }
}

/// Accounts: listed, made, read by id or name, and changed one field at a time.
fn users(state: &mut Value, method: &Method, rest: &[&str], body: &Value) -> (u16, Value) {
    let own = state["me"].as_str().unwrap_or_default().to_owned();
    let all = state["users"].as_array_mut().unwrap();
    let Some(wanted) = rest.first() else {
        if method == Method::GET {
            return (200, json!({"count": all.len(), "users": all}));
        }
        let mut made =
            json!({"id": Uuid::new_v4(), "status": "dormant", "login_type": "password", "roles": []});
        merge(&mut made, body);
        if body["service_account"] == true {
            merge(&mut made, &json!({"is_service_account": true, "login_type": "none"}));
        }
        made["status"] = body.get("user_status").cloned().unwrap_or_else(|| json!("dormant"));
        made["roles"] = json!([]);
        made.as_object_mut().unwrap().remove("password");
        all.push(made.clone());
        return (201, made);
    };
    let wanted = if *wanted == "me" { own.as_str() } else { wanted };
    let Some(found) = all.iter_mut().find(|it| it["id"] == wanted || it["username"] == wanted) else {
        return (404, json!({"message": "Resource not found or you do not have access to this resource"}));
    };
    match rest[1..] {
        ["roles"] => {
            let roles = body["roles"].as_array().unwrap().iter();
            found["roles"] = roles.map(|it| json!({"name": it, "display_name": it})).collect();
        }
        ["profile"] => merge(found, body),
        ["status", "suspend"] => found["status"] = json!("suspended"),
        ["status", "activate"] => found["status"] = json!("active"),
        _ => {}
    }
    (200, found.clone())
}

fn join_or_leave(users: &mut Value, method: &Method, home: &str, user: &str) -> (u16, Value) {
    let found = users.as_array_mut().unwrap().iter_mut().find(|it| it["id"] == user).unwrap();
    let homes = found["organization_ids"].as_array_mut().unwrap();
    homes.retain(|it| it != home);
    if method == Method::POST {
        homes.push(json!(home));
    }
    (200, json!({}))
}

/// The keys of an organization: listed, made, deleted by name.
fn keys(slot: &mut Value, method: &Method, home: &str, name: Option<&str>, body: &Value) -> (u16, Value) {
    if slot.is_null() {
        *slot = json!([]);
    }
    let all = slot.as_array_mut().unwrap();
    let is_called = |it: &Value, name: &str| it["name"].as_str().unwrap().eq_ignore_ascii_case(name);
    match (method.as_str(), name) {
        ("GET", _) => (200, all.iter().map(|it| json!({"key": it, "daemons": []})).collect()),
        ("POST", _) if all.iter().any(|it| is_called(it, body["name"].as_str().unwrap())) => {
            (409, json!({"message": "Provisioner key already exists in organization"}))
        }
        ("POST", _) => {
            let value = format!("{:043}", all.len() + 1 + usize::from(Uuid::new_v4().as_bytes()[0]) * 1000);
            all.push(json!({"id": Uuid::new_v4(), "name": body["name"], "organization": home,
                "tags": body["tags"], "created_at": jiff::Timestamp::now(), "value": value}));
            (201, json!({"key": value}))
        }
        (_, Some(name)) => match all.iter().position(|it| is_called(it, name)) {
            Some(position) => {
                all.remove(position);
                (204, Value::Null)
            }
            None => {
                (404, json!({"message": "Resource not found or you do not have access to this resource"}))
            }
        },
        _ => (404, json!({"message": "Route not found."})),
    }
}

/// Which key a value is.
fn prove(state: &Value, value: &str) -> (u16, Value) {
    let mut all = state["keys"].as_object().unwrap().values().filter_map(Value::as_array).flatten();
    match all.find(|it| it["value"] == value) {
        Some(found) => (200, found.clone()),
        None => (401, json!({"message": "provisioner daemon key invalid"})),
    }
}

fn entitlements(features: &Value) -> Value {
    let features: serde_json::Map<String, Value> = features
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it.as_str().unwrap().to_owned(), json!({"entitlement": "entitled", "enabled": true})))
        .collect();
    json!({"has_license": !features.is_empty(), "features": features, "refreshed_at": "2026-01-01T00:00:00Z"})
}

fn list(found: &Value) -> Value {
    if found.is_null() { json!([]) } else { found.clone() }
}

/// Reads a document, or replaces it as a whole.
fn document(slot: &mut Value, method: &Method, body: &Value, unset: &Value) -> (u16, Value) {
    if slot.is_null() {
        *slot = unset.clone();
    }
    if method != Method::GET {
        *slot = body.clone();
    }
    (200, slot.clone())
}

/// Whether an object of that list has the name.
fn is_taken(list: &Value, name: &Value) -> bool {
    list.as_array().is_some_and(|it| it.iter().any(|it| it["name"] == *name))
}

fn create_organization(state: &mut Value, body: &Value) -> (u16, Value) {
    if is_taken(&state["organizations"], &body["name"]) {
        return (409, json!({"message": "Organization already exists with that name."}));
    }
    let id = Uuid::new_v4().to_string();
    let mut made =
        json!({"id": id, "display_name": body["name"], "description": "", "icon": "", "is_default": false});
    merge(&mut made, body);
    state["organizations"].as_array_mut().unwrap().push(made.clone());
    state["roles"][&id] = json!([{"name": "organization-admin", "built_in": true, "assignable": true}]);
    state["groups"][&id] = json!([group(&id, &id, &json!({"name": "Everyone"}))]);
    (201, made)
}

fn create_group(state: &mut Value, organization: &str, body: &Value) -> (u16, Value) {
    if body["name"] == "Everyone" {
        return (400, json!({"message": "Everyone is a reserved name"}));
    }
    if is_taken(&state["groups"][organization], &body["name"]) {
        return (409, json!({"message": "A group with that name already exists."}));
    }
    let made = group(&Uuid::new_v4().to_string(), organization, body);
    if state["groups"][organization].is_null() {
        state["groups"][organization] = json!([]);
    }
    state["groups"][organization].as_array_mut().unwrap().push(made.clone());
    (201, made)
}

fn group(id: &str, organization: &str, body: &Value) -> Value {
    let mut made = json!({"id": id, "organization_id": organization, "display_name": "", "avatar_url": "",
        "quota_allowance": 0, "source": "user", "members": [], "total_member_count": 0});
    merge(&mut made, body);
    made
}

fn change_group(state: &mut Value, method: &Method, id: &str, body: &Value) -> (u16, Value) {
    let mut fields = body.clone();
    let users = |field: &str| body[field].as_array().cloned().unwrap_or_default();
    let (add, remove) = (users("add_users"), users("remove_users"));
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("add_users");
        fields.remove("remove_users");
    }
    let people = state["members"].clone();
    for groups in state["groups"].as_object_mut().unwrap().values_mut() {
        if groups.as_array().unwrap().iter().all(|it| it["id"] != id) {
            continue;
        }
        let (status, answer) = change(groups, method, id, &fields);
        let Some(found) = groups.as_array_mut().unwrap().iter_mut().find(|it| it["id"] == id) else {
            return (status, answer);
        };
        let home = found["organization_id"].as_str().unwrap().to_owned();
        let mut members = list(&found["members"]).as_array().unwrap().clone();
        members.retain(|it| !remove.contains(&it["id"]));
        for person in list(&people[home]).as_array().unwrap() {
            if add.contains(&person["user_id"]) {
                members.push(json!({"id": person["user_id"], "username": person["username"], "email": person["email"]}));
            }
        }
        found["members"] = members.into();
        return (200, found.clone());
    }
    (404, json!({"message": "Resource not found or you do not have access to this resource"}))
}

/// Changes or deletes one of a list, as coderd does: what is absent stays.
fn change(list: &mut Value, method: &Method, id: &str, body: &Value) -> (u16, Value) {
    let list = list.as_array_mut().unwrap();
    let Some(position) = list.iter().position(|it| it["id"] == id) else {
        return (404, json!({"message": "Resource not found or you do not have access to this resource"}));
    };
    if method == Method::DELETE {
        list.remove(position);
        return (200, json!({"message": "deleted"}));
    }
    merge(&mut list[position], body);
    (200, list[position].clone())
}

fn merge(into: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}
