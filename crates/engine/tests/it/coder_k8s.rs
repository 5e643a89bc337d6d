//! What coder-k8s leaves behind in Coder's tables, into which it writes itself.

/// The two halves of its token: ten letters and twenty-two.
pub(crate) const TOKEN: (&str, &str) = ("k8sTokenId", "k8sTokenSecret12345678");

/// Its account and its token.
pub(crate) async fn write_into_tables(database: &str) {
    let (id, secret) = TOKEN;
    let statement = format!(
        "WITH made AS (INSERT INTO users (id, email, username, name, hashed_password, created_at, updated_at, rbac_roles, \
           login_type, status, is_system) VALUES (gen_random_uuid(), 'coder-k8s-operator@coder-k8s.invalid', \
           'coder-k8s-operator', 'coder-k8s-operator', 'none', now(), now(), '{{owner}}', 'none', 'active', true) \
           RETURNING id), \
         joined AS (INSERT INTO organization_members (organization_id, user_id, created_at, updated_at, roles) \
           SELECT organizations.id, made.id, now(), now(), '{{organization-admin}}' FROM organizations, made) \
         INSERT INTO api_keys (id, hashed_secret, user_id, last_used, expires_at, created_at, updated_at, login_type, \
           lifetime_seconds, ip_address, token_name, scopes, allow_list) \
           SELECT '{id}', sha256('{secret}'), made.id, now(), now() + interval '365 days', now(), now(), 'token', \
           31536000, '0.0.0.0', 'coder-k8s-operator-00c0ffee00c0ffee', '{{coder:all}}', '{{*:*}}' FROM made"
    );
    let psql = testbed::shared::parts().unwrap().postgres.program("psql");
    let output =
        tokio::process::Command::new(psql).args([database, "-c", &statement]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The token as it is sent.
pub(crate) fn token() -> String {
    format!("{}-{}", TOKEN.0, TOKEN.1)
}
