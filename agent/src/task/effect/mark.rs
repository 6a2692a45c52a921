use hpc_schema::id::TaskId;

/// Which effect of which task: the mark that what it makes carries until it has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The task.
    pub task_id: TaskId,
    /// The effect's place in the task's journal.
    pub step: usize,
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.task_id, self.step)
    }
}
