#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes attributes.hlo and attributes.pb, one module as XLA prints and serialises it, from attributes.in.hlo (needs jaxlib)."""
import pathlib
from jaxlib import _hlo

here = pathlib.Path(__file__).parent
module = _hlo.hlo_module_from_text((here / "attributes.in.hlo").read_text())
(here / "attributes.hlo").write_text(module.to_string())
(here / "attributes.pb").write_bytes(module.as_serialized_hlo_module_proto())
