"""References: self-contained modules made from Sites."""

from musacoder_lsp.sites.reference.build import build_reference
from musacoder_lsp.sites.reference.unbuildable import Unbuildable

__all__ = ["Unbuildable", "build_reference"]
