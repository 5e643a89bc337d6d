//! Answers of coderd: a status, a body, and refusals in coderd's own form.

use serde_json::{Value, json};

/// What a handler returns; both sides are answers.
pub(crate) type Handled = Result<Answer, Answer>;

/// An answer before the headers that every answer has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// `None` for an empty body. A string is a body of plain text: coderd has no JSON that is one.
    pub(crate) body: Option<Value>,
    /// A body that is no text, with its content type, in place of the other.
    pub(crate) file: Option<(&'static str, Vec<u8>)>,
    pub(crate) retry_after: Option<i64>,
}

impl Answer {
    pub(crate) fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub(crate) fn created(body: Value) -> Self {
        Self::new(201, body)
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, body: None, file: None, retry_after: None }
    }

    pub(crate) fn message(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, json!({"message": message.into()}))
    }

    /// An answer that is no JSON.
    pub(crate) fn text(status: u16, text: String) -> Self {
        Self::new(status, Value::String(text))
    }

    /// A stored file.
    pub(crate) fn bytes(content_type: &'static str, bytes: Vec<u8>) -> Self {
        Self { file: Some((content_type, bytes)), ..Self::empty(200) }
    }

    fn new(status: u16, body: Value) -> Self {
        Self { status, body: Some(body), file: None, retry_after: None }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        if let Some(body) = &mut self.body {
            body["detail"] = json!(detail.into());
        }
        self
    }

    /// Adds what is wrong with one field.
    pub(crate) fn field(mut self, field: &str, detail: impl Into<String>) -> Self {
        if let Some(body) = &mut self.body {
            let complaint = json!({"field": field, "detail": detail.into()});
            match body.get_mut("validations").and_then(Value::as_array_mut) {
                Some(validations) => validations.push(complaint),
                None => body["validations"] = json!([complaint]),
            }
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: i64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

/// Also the answer for what the caller may not see.
pub(crate) fn not_found() -> Answer {
    Answer::message(404, "Resource not found or you do not have access to this resource")
}

pub(crate) fn forbidden() -> Answer {
    Answer::message(403, "Forbidden.").detail(
        "You don't have permission to view this content. If you believe this is a mistake, please contact your \
         administrator or try signing in with different credentials.",
    )
}

pub(crate) fn signed_out(detail: impl Into<String>) -> Answer {
    Answer::message(401, "You are signed out or your session has expired. Please sign in again to continue.")
        .detail(detail)
}

/// A missing right, on the routes on which coderd leaves it to the database layer.
pub(crate) fn unauthorized(status: u16, message: &str, attempt: &str) -> Answer {
    Answer::message(status, message).detail(format!("{attempt}unauthorized: rbac: forbidden"))
}

/// A missing right, on the routes on which coderd takes it for a failure of its own.
pub(crate) fn internal_unauthorized() -> Answer {
    unauthorized(500, "An internal server error occurred.", "")
}

pub(crate) fn unlicensed(feature: &str) -> Answer {
    Answer::message(403, format!("{feature} is a Premium feature. Contact sales!"))
}
