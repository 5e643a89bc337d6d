//! Which accounts may own test workspaces.

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use http::{Request, Response};

use super::*;

#[tokio::test]
async fn owner_with_more_than_a_plain_members_rights_is_refused() {
    let scene = Scene::tested().await;
    scene.person("alice").await;
    let mut manifest = tested(AGENT, &json!({"owner": "alice"}));
    let refused = scene.blocked(&mut manifest).await;
    assert_eq!(refused.reason, Reason::TestOwnerRefused);
    assert!(
        refused.message.contains("spec.version.test.owner: alice signs in with password"),
        "{}",
        refused.message
    );
    manifest["spec"]["version"]["test"]["owner"] = json!(OWNER);
    for (status, roles, why) in [
        ("active", vec!["auditor".to_owned()], "has the role auditor"),
        ("dormant", vec![], "is dormant"),
        ("suspended", vec![], "is suspended"),
    ] {
        scene.edit_person(OWNER, |it| {
            it.roles.clone_from(&roles);
            status.clone_into(&mut it.status);
        });
        let refused = scene.blocked(&mut manifest).await;
        assert_eq!(refused.reason, Reason::TestOwnerRefused);
        assert!(refused.message.contains(why), "{}", refused.message);
    }
    assert_eq!((scene.versions(), scene.made()), (0, 0), "nothing is published that cannot be tested");
    scene.edit_person(OWNER, |it| {
        it.roles.clear();
        "active".clone_into(&mut it.status);
    });
    scene.passes(&mut manifest).await;

    let mut manifest = tested(AGENT, &json!({"owner": "nobody"}));
    manifest["metadata"]["name"] = json!("other");
    let missing = scene.blocked(&mut manifest).await;
    assert_eq!(missing.reason, Reason::ReferenceNotFound);
    scene.service_account("nobody").await;
    scene.passes(&mut manifest).await;
}

#[tokio::test]
async fn owner_that_administers_the_template_is_refused() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    let path = "/api/v2/organizations/default/groups";
    let group = scene.by_hand(Method::POST, path, &json!({"name": "authors"})).await["id"].clone();
    let owner = scene.deployment.read(|it| it.users.values().find(|it| it.username == OWNER).unwrap().id);
    let members = json!({"add_users": [owner]});
    let (group, owner) = (group.as_str().unwrap().to_owned(), owner.to_string());
    scene.by_hand(Method::PATCH, &format!("/api/v2/groups/{group}"), &members).await;
    let everyone = scene.deployment.read(|it| it.default_organization.to_string());
    let acl = format!("/api/v2/templates/{}/acl", manifest["status"]["id"].as_str().unwrap());
    for (number, (field, id, role, why)) in [
        ("user_perms", &owner, "", "it has the role admin in the ACL of the template"),
        ("group_perms", &group, "", "its group authors has the role admin in the ACL of the template"),
        ("group_perms", &everyone, "use", "its group Everyone has the role admin in the ACL"),
    ]
    .into_iter()
    .enumerate()
    {
        scene.by_hand(Method::PATCH, &acl, &json!({field: {id: "admin"}})).await;
        manifest["spec"]["source"] = source(&format!("{AGENT}\nlocals {{ a = {number} }}"));
        let refused = scene.blocked(&mut manifest).await;
        assert_eq!(refused.reason, Reason::TestOwnerRefused);
        assert!(refused.message.contains(why), "{}", refused.message);
        scene.by_hand(Method::PATCH, &acl, &json!({field: {id: role}})).await;
        scene.passes(&mut manifest).await;
    }
    // What the manifest declares is refused before it is written.
    for (acl, why) in [
        (json!({"users": {OWNER: "admin"}}), "spec.acl.users gives it the role admin"),
        (json!({"groups": {"authors": "admin"}}), "spec.acl.groups gives its group authors the role admin"),
    ] {
        let mut declared = tested(AGENT, &json!({}));
        declared["metadata"]["name"] = json!("other");
        declared["spec"]["acl"] = acl;
        let refused = scene.blocked(&mut declared).await;
        assert!(refused.message.contains(why), "{}", refused.message);
    }
    assert_eq!(scene.versions(), 4);
}

/// A deployment that answers so to reads of the members of organizations.
#[derive(Debug)]
struct Members {
    transport: Arc<dyn Transport>,
    status: u16,
    answer: Value,
}

impl Transport for Members {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        if request.uri().path().ends_with("/paginated-members") {
            let answer = Response::builder().status(self.status).header("x-coder-build-version", "v2.36.1");
            let answer = answer.body(self.answer.to_string().into()).unwrap();
            return Box::pin(std::future::ready(Ok(answer)));
        }
        self.transport.send(request)
    }
}

#[tokio::test]
async fn owner_whose_roles_are_not_shown_is_refused() {
    for (status, answer) in [
        (200, json!({"members": [], "count": 0})),
        (403, json!({"message": "Forbidden."})),
        (404, json!({"message": "Resource not found or you do not have access to this resource"})),
    ] {
        let mut scene = Scene::tested().await;
        let mut manifest = tested(AGENT, &json!({}));
        let members = Members { transport: scene.deployment.transport(), status, answer };
        scene.coder = Coder::new(memory::owner(Arc::new(members)), Promises::default());
        let refused = scene.blocked(&mut manifest).await;
        assert_eq!(refused.reason, Reason::TestOwnerRefused, "{status}");
        let why = "tests is a member of organization coder, and Coder does not show with which roles";
        assert!(refused.message.contains(why), "{status}: {}", refused.message);
        assert_eq!((scene.versions(), scene.made()), (0, 0), "{status}");
    }
}
