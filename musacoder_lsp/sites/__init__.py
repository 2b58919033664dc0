"""Sites: what in a Python file can become a kernel, and the References made from them.

Text in, Sites out. Knows no editor protocol; offsets are code points. Needs no torch.
"""

from musacoder_lsp.sites.document import Document, Edit, SourceText, decode_source, read_source
from musacoder_lsp.sites.index import SiteIndex, find_sites
from musacoder_lsp.sites.reference import Unbuildable, build_reference
from musacoder_lsp.sites.site import Refused, Site
from musacoder_lsp.sites.template import annotation_template

__all__ = [
    "Document",
    "Edit",
    "Refused",
    "Site",
    "SiteIndex",
    "SourceText",
    "Unbuildable",
    "annotation_template",
    "build_reference",
    "decode_source",
    "find_sites",
    "read_source",
]
