//! Whether Coder still has the workspace of a test on record.

use api::{Reason, TemplateTestState};
use client::{Class, workspaces::Workspace};
use uuid::Uuid;

use crate::{
    coder::Coder,
    pipeline::outcome::{Blocked, Trouble},
};

/// The workspaces of tests that are to be deleted.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) former: Vec<Workspace>,
    /// Why Coder does not show the workspace on record, which may still exist. `None` where it does, or where the workspace is
    /// gone.
    pub(super) hidden: Option<Blocked>,
}

impl Left {
    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.former.is_empty() && self.hidden.is_none()
    }

    /// Adds the workspace on record, which no list shows. `home` is its organization, and `None` where Coder does not show that.
    pub(super) async fn trace(
        &mut self,
        open: &TemplateTestState,
        home: Option<Uuid>,
        coder: &Coder,
    ) -> Result<(), Trouble> {
        let Some(id) = id(open).filter(|id| self.former.iter().all(|it| it.id != *id)) else { return Ok(()) };
        match coder.client().workspace(id).await {
            Ok(found) => self.former.push(found),
            Err(error) if error.is_deleted() => {}
            // Coder answers so also where the account may not read the workspace, or its template.
            Err(error) if error.class() == Class::Forbidden => self.hidden = Some(hidden(open)),
            Err(error) if error.class() == Class::Missing => {
                if !coder.client().may_read_workspaces(home).await? {
                    self.hidden = Some(hidden(open));
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The id of a workspace on record. `None` where the answer to its creation was lost.
pub(super) fn id(test: &TemplateTestState) -> Option<Uuid> {
    test.workspace_id.as_ref()?.parse().ok()
}

fn hidden(open: &TemplateTestState) -> Blocked {
    let TemplateTestState { owner, workspace, .. } = open;
    let message = format!(
        "test workspace {owner}/{workspace} is not deleted, and Coder does not show it: let the account of the control plane read \
         the workspaces of the organization"
    );
    Blocked { reason: Reason::Forbidden, message }
}
