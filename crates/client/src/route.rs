//! One verb on one path of Coder's API, with what is sent and read.

use http::Method;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};

/// One verb on one path.
#[derive(Debug)]
pub struct Route {
    method: Method,
    path: &'static str,
    repeatable: bool,
    anonymous: bool,
    request: Option<fn() -> Schema>,
    response: Option<fn() -> Schema>,
}

impl Route {
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The template, its parameters spelled as in Coder's API document.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Whether sending it twice has the same effect as sending it once.
    pub fn repeatable(&self) -> bool {
        self.repeatable
    }

    /// Whether it works without a token; then none is sent.
    pub fn anonymous(&self) -> bool {
        self.anonymous
    }

    /// The schema of what is sent.
    pub fn request(&self) -> Option<Schema> {
        self.request.map(|schema| schema())
    }

    /// The schema of what is read from the answer.
    pub fn response(&self) -> Option<Schema> {
        self.response.map(|schema| schema())
    }

    const fn new(method: Method, path: &'static str) -> Self {
        Self { method, path, repeatable: false, anonymous: false, request: None, response: None }
    }

    pub(crate) const fn may_be_repeated(mut self) -> Self {
        self.repeatable = true;
        self
    }

    pub(crate) const fn without_token(mut self) -> Self {
        self.anonymous = true;
        self
    }

    pub(crate) const fn sends<T: JsonSchema>(mut self) -> Self {
        self.request =
            Some(|| SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>());
        self
    }

    pub(crate) const fn reads<T: JsonSchema>(mut self) -> Self {
        self.response = Some(|| SchemaSettings::default().into_generator().into_root_schema_for::<T>());
        self
    }
}

pub(crate) const fn get(path: &'static str) -> Route {
    Route::new(Method::GET, path).may_be_repeated()
}

pub(crate) const fn post(path: &'static str) -> Route {
    Route::new(Method::POST, path)
}

pub(crate) const fn patch(path: &'static str) -> Route {
    Route::new(Method::PATCH, path)
}

pub(crate) const fn put(path: &'static str) -> Route {
    Route::new(Method::PUT, path).may_be_repeated()
}

/// By id: what a second one finds is gone, and that is what the first one was for.
pub(crate) const fn delete(path: &'static str) -> Route {
    Route::new(Method::DELETE, path).may_be_repeated()
}

/// By name: the name may be another object's by the time of a second one.
pub(crate) const fn delete_by_name(path: &'static str) -> Route {
    Route::new(Method::DELETE, path)
}

/// The routes of one area of the API: a constant for each, and the list of all of them.
macro_rules! routes {
    ($($name:ident = $route:expr;)*) => {
        $(pub(crate) static $name: crate::route::Route = $route;)*

        /// Every route of this area.
        pub(crate) static ROUTES: &[&crate::route::Route] = &[$(&$name),*];
    };
}
pub(crate) use routes;
