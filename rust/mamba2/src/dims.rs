//! The sizes of a mixer and the words for them, the same in Rust, Python, twin and documentation.
//!
//! | word | letter | meaning |
//! |---|---|---|
//! | batch | b | sequences side by side |
//! | seqlen | l | tokens of a sequence |
//! | `d_model` | d | width of the mixer's input and output |
//! | `d_inner` | | expand · `d_model`: width between the projections |
//! | `d_ssm` | | channels of the state space model, nheads · headdim |
//! | `d_mlp` | | `d_inner` − `d_ssm`: channels of the gated MLP beside it |
//! | nheads | h | heads, each with one A, one Δ a token |
//! | headdim | p | channels of a head |
//! | ngroups | g | groups of neighbouring heads that share B and C |
//! | `d_state` | n | size of the state of each channel |
//! | `d_conv` | k | taps of the causal convolution |
//! | `conv_dim` | | `d_ssm` + 2·ngroups·`d_state`: the channels (x, B, C) of the convolution |
//! | nchunks | c | blocks of the scan |
//! | `chunk_size` | t | tokens of a block |

use crate::config::Mamba2Config;
use crate::error::{Error, Result};

/// Sizes that follow from a [`Mamba2Config`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the module's table says what each is
pub struct Dims {
    pub d_model: usize,
    pub d_inner: usize,
    pub d_ssm: usize,
    pub d_mlp: usize,
    pub nheads: usize,
    pub headdim: usize,
    pub ngroups: usize,
    pub norm_groups: usize,
    pub d_state: usize,
    pub d_conv: usize,
    pub conv_dim: usize,
    /// Columns of the input projection: (z0, x0, z, xBC, dt).
    pub d_in_proj: usize,
}

impl Dims {
    /// The sizes of `config`, whose single fields are valid.
    pub(crate) fn of(config: &Mamba2Config) -> Result<Self> {
        let Mamba2Config { d_model, d_state, headdim, ngroups, .. } = *config;
        let larger = if d_model > config.expand { ("d_model", d_model) } else { ("expand", config.expand) };
        let d_inner = checked(config.expand.checked_mul(d_model), larger.0, larger.1)?;
        let d_ssm = config.d_ssm.unwrap_or(d_inner);
        if d_ssm == 0 || d_ssm > d_inner {
            return Err(Error::config("d_ssm", format!("from 1 to d_inner={d_inner}"), d_ssm));
        }
        if !d_ssm.is_multiple_of(headdim) {
            return Err(Error::config("headdim", format!("a divisor of d_ssm={d_ssm}"), headdim));
        }
        let nheads = d_ssm / headdim;
        if !nheads.is_multiple_of(ngroups) {
            return Err(Error::config("ngroups", format!("a divisor of nheads={nheads}"), ngroups));
        }
        let norm_groups = config.norm_groups.unwrap_or(ngroups);
        if norm_groups == 0 || !d_ssm.is_multiple_of(norm_groups) {
            return Err(Error::config("norm_groups", format!("a divisor of d_ssm={d_ssm}"), norm_groups));
        }
        let bc = ngroups.checked_mul(d_state).and_then(|x| x.checked_mul(2));
        let conv_dim = checked(bc.and_then(|x| x.checked_add(d_ssm)), "d_state", d_state)?;
        let width = d_inner.checked_mul(2).and_then(|x| x.checked_add(conv_dim - d_ssm + nheads));
        let d_in_proj = checked(width, "expand", config.expand)?;
        checked(d_in_proj.checked_mul(d_model), "d_model", d_model)?;
        checked(conv_dim.checked_mul(config.d_conv), "d_conv", config.d_conv)?;
        checked(d_ssm.checked_mul(d_state), "d_state", d_state)?;
        Ok(Self {
            d_model,
            d_inner,
            d_ssm,
            d_mlp: d_inner - d_ssm,
            nheads,
            headdim,
            ngroups,
            norm_groups,
            d_state,
            d_conv: config.d_conv,
            conv_dim,
            d_in_proj,
        })
    }

    /// Heads that share one B and C.
    #[must_use]
    pub fn heads_per_group(&self) -> usize {
        self.nheads / self.ngroups
    }

    /// Shape of the convolution's state of `batch` sequences.
    #[must_use]
    pub fn conv_state_shape(&self, batch: usize) -> [usize; 3] {
        [batch, self.conv_dim, self.d_conv - 1]
    }

    /// Shape of the state space model's state of `batch` sequences.
    #[must_use]
    pub fn ssm_state_shape(&self, batch: usize) -> [usize; 4] {
        [batch, self.nheads, self.headdim, self.d_state]
    }
}

/// The largest size of a tensor that can be addressed in bytes.
const MAX_ELEMENTS: usize = isize::MAX as usize / 16;

pub(crate) fn checked(size: Option<usize>, field: &str, value: usize) -> Result<usize> {
    size.filter(|&size| size <= MAX_ELEMENTS).ok_or_else(|| Error::config(field, "smaller: a size overflows", value))
}
