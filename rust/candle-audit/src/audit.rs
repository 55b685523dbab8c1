//! Does the loss reach every variable, in one element type, and does every variable get a gradient?

use std::collections::HashSet;

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor, Var};

use crate::error::Result;
use crate::finding::Finding;
use crate::graph::{Graph, backward};
use crate::report::Report;
use crate::values::{non_finite, numbers};
use crate::variables::Variables;

/// Starts an audit of the way from `variables` (a `&VarMap`, or pairs of name and variable) to `loss`, a tensor of any shape.
///
/// ```
/// use candle_audit::{Error, Finding, audit};
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, VarBuilder, VarMap};
///
/// # fn main() -> candle_audit::Result<()> {
/// let varmap = VarMap::new();
/// let vb = VarBuilder::from_varmap(&varmap, DType::F64, &Device::Cpu);
/// let encoder = candle_nn::linear(3, 4, vb.pp("encoder"))?;
/// let head = candle_nn::linear(4, 1, vb.pp("head"))?;
/// let x = Tensor::arange(0.0, 6.0, &Device::Cpu)?.reshape((2, 3))?; // (batch, features)
///
/// let loss = head.forward(&encoder.forward(&x)?)?.sqr()?.mean_all()?;
/// audit(&loss, &varmap).check()?;
///
/// let loss = head.forward(&encoder.forward(&x)?.detach())?.sqr()?.mean_all()?;
/// let Err(Error::Faults(report)) = audit(&loss, &varmap).check() else { panic!("the detach was not found") };
/// assert_eq!(report.findings()[0], Finding::NotReached { name: "encoder.bias".to_owned() });
/// # Ok(())
/// # }
/// ```
pub fn audit(loss: &Tensor, variables: impl Into<Variables>) -> Audit<'_> {
    Audit {
        loss,
        variables: variables.into(),
        expected: None,
        dtype: None,
        zero: Vec::new(),
        gradients: Gradients::Ours,
    }
}

/// An audit with its options; see [`audit`].
///
/// Candle walks its graphs by recursion, and so does an audit: tens of thousands of operations in a row need a large stack.
#[must_use = "an audit does nothing before `report` or `check`"]
pub struct Audit<'a> {
    loss: &'a Tensor,
    variables: Variables,
    expected: Option<Vec<(String, Vec<usize>)>>,
    dtype: Option<DType>,
    zero: Vec<String>,
    gradients: Gradients<'a>,
}

/// Where the gradients come from.
#[derive(Clone, Copy)]
enum Gradients<'a> {
    Ours,
    Given(&'a GradStore),
    None,
}

impl<'a> Audit<'a> {
    /// The names and shapes of all variables that the model must have. Without it, a parameter that is a plain tensor can't be
    /// found: it's in no map and in no graph.
    pub fn expecting<S: Into<String>, D: AsRef<[usize]>>(
        mut self,
        variables: impl IntoIterator<Item = (S, D)>,
    ) -> Self {
        let list = variables.into_iter().map(|(name, dims)| (name.into(), dims.as_ref().to_vec()));
        self.expected = Some(list.collect());
        self
    }

    /// The element type that every node must have; by default that of most variables.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Variables whose gradient may be all zeros, by name or pattern (`*` stands for any text): those behind an input of zeros
    /// or a clamp that is always active.
    pub fn allowing_zero<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.zero.extend(names.into_iter().map(Into::into));
        self
    }

    /// Looks at these gradients of the loss, instead of running a backward pass.
    pub fn gradients(mut self, gradients: &'a GradStore) -> Self {
        self.gradients = Gradients::Given(gradients);
        self
    }

    /// Looks at the graph only: no backward pass, no gradients.
    pub fn without_backward(mut self) -> Self {
        self.gradients = Gradients::None;
        self
    }

    /// All that is wrong.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchVariable`] where an allowed name fits no variable, and Candle's errors.
    pub fn report(self) -> Result<Report> {
        let allowed = self.variables.matching(&self.zero)?;
        let graph = Graph::of(self.loss);
        let mut findings = self.unlike_expected();
        if graph.is_empty() {
            findings.push(Finding::NoGraph);
        }
        self.walk(&graph, &mut findings);
        let ours;
        let gradients = match self.gradients {
            Gradients::Given(given) => Some(given),
            Gradients::None => None,
            Gradients::Ours if graph.is_empty() => None,
            Gradients::Ours => match backward(self.loss) {
                Ok(store) => {
                    ours = store;
                    Some(&ours)
                }
                Err(message) => {
                    findings.push(Finding::BackwardFailed { message });
                    None
                }
            },
        };
        for (name, var) in self.variables.trainable() {
            if !graph.reaches(var) {
                findings.push(Finding::NotReached { name: name.to_owned() });
            } else if let Some(gradients) = gradients {
                findings.extend(judge(name, var, gradients.get(var), &allowed)?);
            }
        }
        Ok(Report::new(findings, self.variables.len()))
    }

    /// The report where nothing is wrong.
    ///
    /// # Errors
    /// [`crate::Error::Faults`] where something is, and the errors of [`Self::report`].
    pub fn check(self) -> Result<Report> {
        self.report()?.into_result()
    }

    fn unlike_expected(&self) -> Vec<Finding> {
        let Some(expected) = &self.expected else { return Vec::new() };
        let mut findings = Vec::new();
        for (name, dims) in expected {
            match self.variables.get(name) {
                None => findings.push(Finding::Absent { name: name.clone(), shape: dims.clone() }),
                Some(var) if var.dims() != dims => {
                    let (expected, got) = (dims.clone(), var.dims().to_vec());
                    findings.push(Finding::VariableShape { name: name.clone(), expected, got });
                }
                Some(_) => {}
            }
        }
        let known: HashSet<_> = expected.iter().map(|(name, _)| name.as_str()).collect();
        for (name, var) in self.variables.iter().filter(|(name, _)| !known.contains(name)) {
            findings.push(Finding::Surplus { name: name.to_owned(), shape: var.dims().to_vec() });
        }
        findings
    }

    /// Variables that nobody knows, and nodes of another type.
    fn walk(&self, graph: &Graph<'_>, findings: &mut Vec<Finding>) {
        let expected = self.dtype.or_else(|| self.variables.dtype());
        for (tensor, node) in graph.nodes(&self.variables) {
            if tensor.is_variable() && node.name.is_none() {
                findings.push(Finding::NotInMap { node: node.clone() });
            }
            if let Some(expected) = expected.filter(|&dtype| tensor.dtype().is_float() && tensor.dtype() != dtype) {
                findings.push(Finding::OtherDType { node, expected });
            }
        }
    }
}

fn judge(name: &str, var: &Var, gradient: Option<&Tensor>, zero: &HashSet<&str>) -> Result<Option<Finding>> {
    let name = name.to_owned();
    let Some(gradient) = gradient else { return Ok(Some(Finding::MissingGradient { name })) };
    if gradient.dims() != var.dims() {
        let (expected, got) = (var.dims().to_vec(), gradient.dims().to_vec());
        return Ok(Some(Finding::GradientShape { name, expected, got }));
    }
    if gradient.dtype() != var.dtype() {
        return Ok(Some(Finding::GradientDType { name, expected: var.dtype(), got: gradient.dtype() }));
    }
    let values = numbers(gradient)?;
    let (count, total) = (non_finite(&values), values.len());
    if count > 0 {
        return Ok(Some(Finding::NonFiniteGradient { name, count, total }));
    }
    let all_zero = total > 0 && values.iter().all(|&x| x == 0.0);
    Ok((all_zero && !zero.contains(name.as_str())).then_some(Finding::ZeroGradient { name }))
}
