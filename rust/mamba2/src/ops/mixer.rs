//! One mixer on the CPU kernels, as one differentiable operation: projections and core.
//!
//! The projections are part of it because Candle would add the gradient of what lies between, the widest tensor of all, to zeros, and
//! would fill the results of products with zeros first.

use candle_core::{DType, Result, Shape, Tensor, WithDType, bail};

use super::joint::joint;
use super::numbers::Numbers;
use crate::composed::CoreParams as CoreTensors;
use crate::config::Mamba2Config;
use crate::dims::Dims;
use crate::interrupt;
use crate::kernels::core::{Core, CoreInput, CoreOptions, CoreParams};
use crate::kernels::core_backward::CoreUpstream;
use crate::kernels::core_forward::{CoreSaved, Wanted};
use crate::kernels::linear::Linear as LinearKernel;
use crate::kernels::real::Real;
use crate::kernels::step::StepInput;
use crate::linear::Linear;
use crate::memory::reserve;
use crate::state::State;
use crate::trace::stage;

impl CoreOptions {
    /// Those of a configuration.
    #[must_use]
    pub fn of(config: &Mamba2Config) -> Self {
        Self {
            dt_limit: config.dt_limit,
            d_has_hdim: config.d_has_hdim,
            norm_before_gate: config.norm_before_gate,
            norm_eps: config.norm_eps,
        }
    }
}

/// The value of an expression that is a stage of its own.
macro_rules! timed {
    ($name:literal, $work:expr) => {{
        let _stage = stage!($name);
        $work
    }};
}

/// A mixer's sizes, options and parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mixer<'a> {
    pub(crate) dims: &'a Dims,
    pub(crate) options: CoreOptions,
    pub(crate) in_proj: &'a Linear,
    pub(crate) core: &'a CoreTensors,
    pub(crate) out_proj: &'a Linear,
}

/// u (batch, seqlen, `d_model`) and the state before it -> y of u's shape and the state after the last token.
/// batch and seqlen are at least 1. Differentiable in every tensor.
pub(crate) fn mixer(mixer: Mixer<'_>, u: &Tensor, state: Option<&State>) -> crate::Result<(Tensor, State)> {
    let (batch, seqlen, _) = u.dims3()?;
    if u.dtype() == DType::F32 {
        check_memory::<f32>(mixer.dims, batch, seqlen)?;
        Ok(run::<f32>(mixer, u, state)?)
    } else {
        check_memory::<f64>(mixer.dims, batch, seqlen)?;
        Ok(run::<f64>(mixer, u, state)?)
    }
}

/// What goes in, in the order of the gradients.
#[derive(Debug, Clone, Copy)]
enum Operand {
    U,
    InWeight,
    InBias,
    ConvWeight,
    ConvBias,
    DtBias,
    ALog,
    D,
    NormWeight,
    OutWeight,
    OutBias,
    ConvState,
    SsmState,
}

/// One thing for each operand, where there is one.
type PerOperand<X> = [Option<X>; Operand::SsmState as usize + 1];

fn run<T: Real + WithDType>(mixer: Mixer<'_>, u: &Tensor, state: Option<&State>) -> Result<(Tensor, State)> {
    let (batch, seqlen, _) = u.dims3()?;
    let (in_proj, core, out_proj) = (mixer.in_proj, mixer.core, mixer.out_proj);
    let operands: PerOperand<&Tensor> = [
        Some(u),
        Some(&in_proj.weight),
        in_proj.bias.as_ref(),
        Some(&core.conv_weight),
        core.conv_bias.as_ref(),
        Some(&core.dt_bias),
        Some(&core.a_log),
        Some(&core.d),
        core.norm_weight.as_ref(),
        Some(&out_proj.weight),
        out_proj.bias.as_ref(),
        state.map(|state| &state.conv),
        state.map(|state| &state.ssm),
    ];
    let mut contiguous: PerOperand<Tensor> = Default::default();
    for (to, from) in contiguous.iter_mut().zip(operands) {
        *to = from.map(Tensor::contiguous).transpose()?;
    }
    let inputs: Vec<_> = contiguous.iter().flatten().collect();
    let tracked = inputs.iter().any(|input| input.track_op());
    let call = Call {
        dims: *mixer.dims,
        options: mixer.options,
        batch,
        seqlen,
        wanted: contiguous.each_ref().map(|tensor| tensor.as_ref().is_some_and(Tensor::track_op)),
        operands: contiguous.each_ref().map(|tensor| tensor.as_ref().map(Tensor::detach)),
    };

    let values = call.forward::<T>(Wanted { states: true, saved: tracked })?;
    let mut outputs = vec![(values.y, Shape::from(u.dims()))];
    if let Some((conv, ssm)) = values.states {
        outputs.push((conv, Shape::from(mixer.dims.conv_state_shape(batch).as_slice())));
        outputs.push((ssm, Shape::from(mixer.dims.ssm_state_shape(batch).as_slice())));
    }
    let saved = values.saved;
    let pullback = move |upstream: Vec<Option<Tensor>>| match &saved {
        Some(saved) => call.backward(saved, &upstream),
        None => bail!("a backward without what its forward saves"),
    };
    let mut outputs = joint("mamba2-mixer", &inputs, outputs, Box::new(pullback))?.into_iter();
    match (outputs.next(), outputs.next(), outputs.next()) {
        (Some(y), Some(conv), Some(ssm)) => Ok((y, State { conv, ssm })),
        _ => bail!("a mixer without an output"),
    }
}

/// An error where a plain allocation of the largest results would end the process.
fn check_memory<T>(dims: &Dims, batch: usize, seqlen: usize) -> crate::Result<()> {
    let largest = [
        ("what the input projection gives", vec![batch, seqlen, dims.d_in_proj]),
        ("the state after the last token", dims.ssm_state_shape(batch).to_vec()),
        ("the convolution's state after the last token", dims.conv_state_shape(batch).to_vec()),
    ];
    for (what, shape) in largest {
        let elements = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        drop(reserve::<T>(elements.unwrap_or(usize::MAX), what)?);
    }
    Ok(())
}

/// One call: its sizes, and its operands without the graph that made them.
struct Call {
    dims: Dims,
    options: CoreOptions,
    batch: usize,
    seqlen: usize,
    operands: PerOperand<Tensor>,
    /// Of which operands a gradient is asked for.
    wanted: [bool; Operand::SsmState as usize + 1],
}

/// What a forward gives.
struct Values<T> {
    y: Vec<T>,
    states: Option<(Vec<T>, Vec<T>)>,
    saved: Option<Saved<T>>,
}

/// What a backward needs beside the operands.
struct Saved<T> {
    /// (batch, seqlen, `d_in_proj`).
    zxbcdt: Vec<T>,
    core: CoreSaved<T>,
    /// (batch, seqlen, `d_inner`): what the output projection takes.
    y: Vec<T>,
}

impl Call {
    fn numbers<T: WithDType>(&self) -> Result<PerOperand<Numbers<'_, T>>> {
        let mut numbers: PerOperand<Numbers<'_, T>> = Default::default();
        for (numbers, tensor) in numbers.iter_mut().zip(&self.operands) {
            *numbers = tensor.as_ref().map(Numbers::of).transpose()?;
        }
        Ok(numbers)
    }

    fn forward<T: Real + WithDType>(&self, wanted: Wanted) -> Result<Values<T>> {
        let numbers = self.numbers::<T>()?;
        let parts = Parts::new(self, &numbers)?;
        let zxbcdt = timed!("in_proj", parts.in_proj.forward(parts.u));
        interrupt::check()?;
        if let (1, false, Some(conv_state), Some(ssm_state)) =
            (self.seqlen, wanted.saved, parts.conv_state, parts.ssm_state)
        {
            let output = parts.core.step(&StepInput { batch: self.batch, zxbcdt: &zxbcdt, conv_state, ssm_state });
            let states = Some((output.conv_state, output.ssm_state));
            return Ok(Values { y: timed!("out_proj", parts.out_proj.forward(&output.y)), states, saved: None });
        }
        let stop = interrupt::flag();
        let output = parts.core.forward(&parts.input(self, &zxbcdt), wanted, stop.as_deref());
        let output = output.map_err(interrupt::stopped)?;
        Ok(Values {
            y: timed!("out_proj", parts.out_proj.forward(&output.y)),
            states: output.conv_state.zip(output.ssm_state),
            saved: output.saved.map(|core| Saved { zxbcdt, core, y: output.y }),
        })
    }

    fn backward<T: Real + WithDType>(
        &self,
        saved: &Saved<T>,
        upstream: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let mut contiguous: [Option<Tensor>; 3] = Default::default();
        for (to, from) in contiguous.iter_mut().zip(upstream) {
            *to = from.as_ref().map(Tensor::contiguous).transpose()?;
        }
        let [dy, d_conv, d_ssm] = &contiguous;
        let zeros = match dy {
            Some(_) => None,
            None => self.operands[Operand::U as usize].as_ref().map(Tensor::zeros_like).transpose()?,
        };
        let Some(dy) = dy.as_ref().or(zeros.as_ref()) else { bail!("a mixer without an input") };
        let dy = Numbers::<T>::of(dy)?;
        let dy = dy.slice()?;
        let d_conv = d_conv.as_ref().map(Numbers::<T>::of).transpose()?;
        let d_ssm = d_ssm.as_ref().map(Numbers::<T>::of).transpose()?;
        let numbers = self.numbers::<T>()?;
        let parts = Parts::new(self, &numbers)?;
        let input = parts.input(self, &saved.zxbcdt);
        let wanted = |operand: Operand| self.wanted[operand as usize];

        let mut gradients: PerOperand<Vec<T>> = Default::default();
        if wanted(Operand::OutWeight) || wanted(Operand::OutBias) {
            let (weight, bias) = timed!("out_proj.backward.weight", parts.out_proj.backward_parameters(&saved.y, dy));
            gradients[Operand::OutWeight as usize] = Some(weight);
            gradients[Operand::OutBias as usize] = Some(bias);
            interrupt::check()?;
        }
        let d_core = timed!("out_proj.backward.input", parts.out_proj.backward(dy));
        interrupt::check()?;
        let upstream = CoreUpstream {
            y: &d_core,
            conv_state: d_conv.as_ref().map(Numbers::slice).transpose()?,
            ssm_state: d_ssm.as_ref().map(Numbers::slice).transpose()?,
        };
        let states = wanted(Operand::ConvState) || wanted(Operand::SsmState);
        let stop = interrupt::flag();
        let core = parts.core.backward(&input, &saved.core, &upstream, states, stop.as_deref());
        let core = core.map_err(interrupt::stopped)?;
        drop(d_core);
        if wanted(Operand::InWeight) || wanted(Operand::InBias) {
            let (weight, bias) =
                timed!("in_proj.backward.weight", parts.in_proj.backward_parameters(parts.u, &core.zxbcdt));
            gradients[Operand::InWeight as usize] = Some(weight);
            gradients[Operand::InBias as usize] = Some(bias);
            interrupt::check()?;
        }
        if wanted(Operand::U) {
            gradients[Operand::U as usize] =
                Some(timed!("in_proj.backward.input", parts.in_proj.backward(&core.zxbcdt)));
        }
        let params = core.params;
        for (operand, gradient) in [
            (Operand::ConvWeight, params.conv_weight),
            (Operand::ConvBias, params.conv_bias),
            (Operand::DtBias, params.dt_bias),
            (Operand::ALog, params.a_log),
            (Operand::D, params.d),
            (Operand::NormWeight, params.norm_weight),
        ] {
            gradients[operand as usize] = Some(gradient);
        }
        gradients[Operand::ConvState as usize] = core.conv_state;
        gradients[Operand::SsmState as usize] = core.ssm_state;

        let all = self.operands.iter().zip(&self.wanted).zip(gradients);
        let given =
            all.filter_map(|((operand, &wanted), gradient)| Some((operand.as_ref()?, gradient.filter(|_| wanted))));
        given
            .map(|(operand, gradient)| {
                gradient.map(|gradient| Tensor::from_vec(gradient, operand.shape(), operand.device())).transpose()
            })
            .collect()
    }
}

/// The kernels' view of a call.
struct Parts<'a, T> {
    u: &'a [T],
    in_proj: LinearKernel<'a, T>,
    core: Core<'a, T>,
    out_proj: LinearKernel<'a, T>,
    conv_state: Option<&'a [T]>,
    ssm_state: Option<&'a [T]>,
}

impl<'a, T: Real + WithDType> Parts<'a, T> {
    fn new(call: &Call, numbers: &'a PerOperand<Numbers<'_, T>>) -> Result<Self> {
        let optional = |operand: Operand| numbers[operand as usize].as_ref().map(Numbers::slice).transpose();
        let needed = |operand: Operand| match optional(operand)? {
            Some(numbers) => Ok(numbers),
            None => bail!("a mixer without its operand {operand:?}"),
        };
        Ok(Self {
            u: needed(Operand::U)?,
            in_proj: LinearKernel {
                weight: needed(Operand::InWeight)?,
                bias: optional(Operand::InBias)?,
                inputs: call.dims.d_model,
            },
            core: Core {
                dims: call.dims,
                options: call.options,
                params: CoreParams {
                    conv_weight: needed(Operand::ConvWeight)?,
                    conv_bias: optional(Operand::ConvBias)?,
                    dt_bias: needed(Operand::DtBias)?,
                    a_log: needed(Operand::ALog)?,
                    d: needed(Operand::D)?,
                    norm_weight: optional(Operand::NormWeight)?,
                },
            },
            out_proj: LinearKernel {
                weight: needed(Operand::OutWeight)?,
                bias: optional(Operand::OutBias)?,
                inputs: call.dims.d_inner,
            },
            conv_state: optional(Operand::ConvState)?,
            ssm_state: optional(Operand::SsmState)?,
        })
    }

    fn input(&self, call: &Call, zxbcdt: &'a [T]) -> CoreInput<'a, T> {
        let (conv_state, ssm_state) = (self.conv_state, self.ssm_state);
        CoreInput { batch: call.batch, seqlen: call.seqlen, zxbcdt, conv_state, ssm_state }
    }
}
