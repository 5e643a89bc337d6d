//! The works that are measured, and which of them continue from another one.

use clap::ValueEnum;

use super::mixed;

/// A work that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Work {
    /// An operator without objects: its watches and its memory
    Empty,
    /// A control plane that runs elsewhere, and its first licence: until `licenseTier` is `premium`
    #[value(name = "plane-and-license")]
    PlaneAndLicense,
    /// One provisioner: from apply to converged
    #[value(name = "provisioners-1")]
    Provisioners1,
    /// A burst of 50 provisioners: from apply to converged
    #[value(name = "provisioners-50")]
    Provisioners50,
    /// A burst of 200 provisioners: from apply to converged
    #[value(name = "provisioners-200")]
    Provisioners200,
    /// The 200 provisioners while nothing changes; scaled to 10 minutes. Continues from provisioners-200
    #[value(name = "idle")]
    Idle,
    /// The operator restarts with the 200 provisioners: until each was reconciled. Continues from provisioners-200
    #[value(name = "restart")]
    Restart,
    /// Deletion of the 200 provisioners: until all are gone, with their keys. Continues from provisioners-200
    #[value(name = "delete-200")]
    Delete200,
    /// 1,000 new groups in 5 organizations through `run`: until all are Ready
    #[value(name = "groups-1000")]
    Groups1000,
    /// The operator restarts with the 1,000 groups: until each was reconciled. Continues from groups-1000
    #[value(name = "restart-groups")]
    RestartGroups,
    /// 1,000 new groups in 5 organizations through `coder-operator apply --yes`
    #[value(name = "groups-1000-cli")]
    Groups1000Cli,
    /// `coder-operator plan` of the 1,000 groups, unchanged. Continues from groups-1000-cli
    #[value(name = "plan-1000")]
    Plan1000,
    /// 300 users, 300 groups, 60 roles and 40 templates of one archive through `coder-operator apply --yes`
    #[value(name = "mixed-700")]
    Mixed,
    /// `coder-operator plan` of the 700 objects, unchanged. Continues from mixed-700
    #[value(name = "plan-700")]
    PlanMixed,
}

/// Works that share an operator and a coderd, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    Empty,
    PlaneAndLicense,
    OneProvisioner,
    FiftyProvisioners,
    Provisioners,
    Groups,
    CommandLine,
    Mixed,
}

impl Chain {
    pub(super) const ALL: [Self; 8] = [
        Self::Empty,
        Self::PlaneAndLicense,
        Self::OneProvisioner,
        Self::FiftyProvisioners,
        Self::Provisioners,
        Self::Groups,
        Self::CommandLine,
        Self::Mixed,
    ];

    /// Returns the works in their order. Each continues from the state that those before it left.
    pub(super) fn works(self) -> &'static [Work] {
        match self {
            Self::Empty => &[Work::Empty],
            Self::PlaneAndLicense => &[Work::PlaneAndLicense],
            Self::OneProvisioner => &[Work::Provisioners1],
            Self::FiftyProvisioners => &[Work::Provisioners50],
            Self::Provisioners => &[Work::Provisioners200, Work::Idle, Work::Restart, Work::Delete200],
            Self::Groups => &[Work::Groups1000, Work::RestartGroups],
            Self::CommandLine => &[Work::Groups1000Cli, Work::Plan1000],
            Self::Mixed => &[Work::Mixed, Work::PlanMixed],
        }
    }

    /// Returns the works to run where some were chosen: the first of a chain runs before any of the others.
    pub(super) fn chosen(self, chosen: &[Work]) -> Vec<Work> {
        let is_chosen = |work: &Work| chosen.is_empty() || chosen.contains(work);
        let works = self.works();
        if !works.iter().any(is_chosen) {
            return Vec::new();
        }
        let first = works.first().copied();
        works.iter().copied().filter(|it| Some(*it) == first || is_chosen(it)).collect()
    }
}

impl Work {
    /// Returns the name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns how many objects the work is about.
    pub(super) fn objects(self) -> u32 {
        match self {
            Self::Empty => 0,
            Self::PlaneAndLicense | Self::Provisioners1 => 1,
            Self::Provisioners50 => 50,
            Self::Provisioners200 | Self::Idle | Self::Restart | Self::Delete200 => 200,
            Self::Groups1000 | Self::RestartGroups | Self::Groups1000Cli | Self::Plan1000 => 1000,
            Self::Mixed | Self::PlanMixed => mixed::OBJECTS,
        }
    }

    /// Whether requests are shown for each object, not for the whole work.
    pub(super) fn is_per_object(self) -> bool {
        match self {
            Self::Provisioners1
            | Self::Provisioners50
            | Self::Provisioners200
            | Self::Delete200
            | Self::Groups1000
            | Self::Groups1000Cli
            | Self::Mixed => true,
            Self::Empty
            | Self::PlaneAndLicense
            | Self::Idle
            | Self::Restart
            | Self::RestartGroups
            | Self::Plan1000
            | Self::PlanMixed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_is_in_one_chain() {
        let in_chains: Vec<Work> = Chain::ALL.iter().flat_map(|it| it.works()).copied().collect();
        assert_eq!(in_chains, Work::value_variants());
    }

    #[test]
    fn first_work_of_a_chain_runs_before_a_chosen_one() {
        assert_eq!(Chain::Provisioners.chosen(&[Work::Delete200]), [Work::Provisioners200, Work::Delete200]);
        assert_eq!(Chain::Provisioners.chosen(&[Work::Empty]), []);
        assert_eq!(Chain::Groups.chosen(&[]), [Work::Groups1000, Work::RestartGroups]);
    }
}
