//! What a check found, as a list and as a few lines of text.

use std::fmt;

use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::finding::Finding;

/// How many places of one fault are written out; the list itself holds all.
const WRITTEN: usize = 24;

/// The faults that a check found; empty where it found none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    findings: Vec<Finding>,
    looked_at: usize,
}

impl Report {
    pub(crate) fn new(findings: Vec<Finding>, looked_at: usize) -> Self {
        Self { findings, looked_at }
    }

    /// The faults.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many variables or inputs were looked at.
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// This report where nothing is wrong.
    ///
    /// # Errors
    /// [`Error::Faults`] with this report otherwise.
    pub fn into_result(self) -> Result<Self> {
        if self.is_clean() { Ok(self) } else { Err(Error::Faults(self)) }
    }
}

/// A line for each kind of fault, with all names and places.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        if self.is_clean() {
            return write!(f, "no fault found, {} looked at", self.looked_at);
        }
        let count = self.findings.len();
        write!(f, "{count} fault{} found, {} looked at", plural(count), self.looked_at)?;
        let mut kinds: IndexMap<&str, Vec<String>> = IndexMap::new();
        for finding in &self.findings {
            kinds.entry(finding.fault()).or_default().push(finding.place());
        }
        for (fault, places) in kinds {
            let written = places.iter().take(WRITTEN).cloned().collect::<Vec<_>>().join(", ");
            write!(f, "\n  {fault}")?;
            if !written.is_empty() {
                write!(f, ": {written}")?;
            }
            if places.len() > WRITTEN {
                write!(f, " and {} more", places.len() - WRITTEN)?;
            }
        }
        Ok(())
    }
}
