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
use crate::kernels::core::{Core, CoreOptions, CoreParams};
use crate::kernels::core_forward::Wanted;
use crate::kernels::linear::Linear as LinearKernel;
use crate::kernels::mixer::{
    Mixer as MixerKernel, MixerGradients, MixerInput, MixerOutput, MixerSaved, MixerUpstream, MixerWanted,
};
use crate::kernels::real::Real;
use crate::linear::Linear;
use crate::memory::reserve;
use crate::state::State;

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
    if let Some((conv, ssm)) = values.conv_state.zip(values.ssm_state) {
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

impl Call {
    fn numbers<T: WithDType>(&self) -> Result<PerOperand<Numbers<'_, T>>> {
        let mut numbers: PerOperand<Numbers<'_, T>> = Default::default();
        for (numbers, tensor) in numbers.iter_mut().zip(&self.operands) {
            *numbers = tensor.as_ref().map(Numbers::of).transpose()?;
        }
        Ok(numbers)
    }

    fn forward<T: Real + WithDType>(&self, wanted: Wanted) -> Result<MixerOutput<T>> {
        let numbers = self.numbers::<T>()?;
        let stop = interrupt::flag();
        let output = self.kernel(&numbers)?.forward(&self.input(&numbers)?, wanted, stop.as_deref());
        output.map_err(interrupt::stopped)
    }

    fn backward<T: Real + WithDType>(
        &self,
        saved: &MixerSaved<T>,
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
        let d_conv = d_conv.as_ref().map(Numbers::<T>::of).transpose()?;
        let d_ssm = d_ssm.as_ref().map(Numbers::<T>::of).transpose()?;
        let upstream = MixerUpstream {
            y: dy.slice()?,
            conv_state: d_conv.as_ref().map(Numbers::slice).transpose()?,
            ssm_state: d_ssm.as_ref().map(Numbers::slice).transpose()?,
        };
        let wanted = |operand: Operand| self.wanted[operand as usize];
        let of_parts = MixerWanted {
            u: wanted(Operand::U),
            in_proj: wanted(Operand::InWeight) || wanted(Operand::InBias),
            out_proj: wanted(Operand::OutWeight) || wanted(Operand::OutBias),
            states: wanted(Operand::ConvState) || wanted(Operand::SsmState),
        };
        let numbers = self.numbers::<T>()?;
        let stop = interrupt::flag();
        let gradients =
            self.kernel(&numbers)?.backward(&self.input(&numbers)?, saved, &upstream, of_parts, stop.as_deref());
        self.tensors(gradients.map_err(interrupt::stopped)?)
    }

    /// The gradients of the operands that there are, in their order, where they were asked for.
    fn tensors<T: Real + WithDType>(&self, gradients: MixerGradients<T>) -> Result<Vec<Option<Tensor>>> {
        let (in_weight, in_bias) = gradients.in_proj.unzip();
        let (out_weight, out_bias) = gradients.out_proj.unzip();
        let core = gradients.core;
        let gradients: PerOperand<Vec<T>> = [
            gradients.u,
            in_weight,
            in_bias,
            Some(core.conv_weight),
            Some(core.conv_bias),
            Some(core.dt_bias),
            Some(core.a_log),
            Some(core.d),
            Some(core.norm_weight),
            out_weight,
            out_bias,
            gradients.conv_state,
            gradients.ssm_state,
        ];
        let all = self.operands.iter().zip(&self.wanted).zip(gradients);
        let given =
            all.filter_map(|((operand, &wanted), gradient)| Some((operand.as_ref()?, gradient.filter(|_| wanted))));
        given
            .map(|(operand, gradient)| {
                gradient.map(|gradient| Tensor::from_vec(gradient, operand.shape(), operand.device())).transpose()
            })
            .collect()
    }

    fn kernel<'a, T: Real + WithDType>(&self, numbers: &'a PerOperand<Numbers<'_, T>>) -> Result<MixerKernel<'a, T>> {
        Ok(MixerKernel {
            in_proj: LinearKernel {
                weight: needed(numbers, Operand::InWeight)?,
                bias: optional(numbers, Operand::InBias)?,
                inputs: self.dims.d_model,
            },
            core: Core {
                dims: self.dims,
                options: self.options,
                params: CoreParams {
                    conv_weight: needed(numbers, Operand::ConvWeight)?,
                    conv_bias: optional(numbers, Operand::ConvBias)?,
                    dt_bias: needed(numbers, Operand::DtBias)?,
                    a_log: needed(numbers, Operand::ALog)?,
                    d: needed(numbers, Operand::D)?,
                    norm_weight: optional(numbers, Operand::NormWeight)?,
                },
            },
            out_proj: LinearKernel {
                weight: needed(numbers, Operand::OutWeight)?,
                bias: optional(numbers, Operand::OutBias)?,
                inputs: self.dims.d_inner,
            },
        })
    }

    fn input<'a, T: Real + WithDType>(&self, numbers: &'a PerOperand<Numbers<'_, T>>) -> Result<MixerInput<'a, T>> {
        Ok(MixerInput {
            batch: self.batch,
            seqlen: self.seqlen,
            u: needed(numbers, Operand::U)?,
            conv_state: optional(numbers, Operand::ConvState)?,
            ssm_state: optional(numbers, Operand::SsmState)?,
        })
    }
}

fn optional<'a, T: WithDType>(numbers: &'a PerOperand<Numbers<'_, T>>, operand: Operand) -> Result<Option<&'a [T]>> {
    numbers[operand as usize].as_ref().map(Numbers::slice).transpose()
}

fn needed<'a, T: WithDType>(numbers: &'a PerOperand<Numbers<'_, T>>, operand: Operand) -> Result<&'a [T]> {
    match optional(numbers, operand)? {
        Some(numbers) => Ok(numbers),
        None => bail!("a mixer without its operand {operand:?}"),
    }
}
