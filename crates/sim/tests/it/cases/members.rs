//! Members and roles of an organization.

use crate::side::{MEMBER, OWNER, Side};

pub(super) async fn members(side: &mut Side) {
    let organization = side.default_organization().await;
    let path = format!("/api/v2/organizations/{organization}/paginated-members");
    for query in
        ["", "?limit=1", "?limit=1&offset=1", "?limit=0&offset=0", "?offset=9", "?limit=-1", "?limit=x"]
    {
        side.get(OWNER, &format!("{path}{query}")).await;
    }
    side.get(MEMBER, &path).await;
    side.get(OWNER, "/api/v2/organizations/default/paginated-members?limit=500&offset=0").await;
    side.get(MEMBER, "/api/v2/organizations/payments/paginated-members").await;
}

pub(super) async fn roles(side: &mut Side) {
    for who in [OWNER, MEMBER] {
        side.roles(who, "default").await;
    }
    side.get(MEMBER, "/api/v2/organizations/payments/members/roles").await;
}
