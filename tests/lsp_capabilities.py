"""What real clients announce, as far as it concerns this server.

VS Code: vscode-languageclient 10.1 (protocol 3.18). Neovim: captured from 0.11.4.
"""

from __future__ import annotations

from typing import Any

VSCODE: dict[str, Any] = {
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {
            "documentChanges": True,
            "resourceOperations": ["create", "rename", "delete"],
            "failureHandling": "textOnlyTransactional",
            "normalizesLineEndings": True,
            "changeAnnotationSupport": {"groupsOnLabel": True},
            "metadataSupport": True,
            "snippetEditSupport": True,
        },
        "configuration": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "codeLens": {"refreshSupport": True},
        "executeCommand": {"dynamicRegistration": True},
        "workspaceFolders": True,
        "inlayHint": {"refreshSupport": True},
        "diagnostics": {"refreshSupport": True},
    },
    "textDocument": {
        "publishDiagnostics": {
            "relatedInformation": True,
            "versionSupport": False,
            "tagSupport": {"valueSet": [1, 2]},
            "codeDescriptionSupport": True,
            "dataSupport": True,
        },
        "synchronization": {"dynamicRegistration": True, "didSave": True, "willSave": True},
        "hover": {"dynamicRegistration": True, "contentFormat": ["markdown", "plaintext"]},
        "codeAction": {
            "dynamicRegistration": True,
            "isPreferredSupport": True,
            "disabledSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit", "command"]},
            "codeActionLiteralSupport": {
                "codeActionKind": {
                    "valueSet": ["", "quickfix", "refactor", "refactor.rewrite", "source"]
                }
            },
            "honorsChangeAnnotations": True,
            "tagSupport": {"valueSet": [1]},
        },
        "codeLens": {"dynamicRegistration": True, "resolveSupport": {"properties": ["command"]}},
    },
    "window": {
        "showMessage": {"messageActionItem": {"additionalPropertiesSupport": True}},
        "showDocument": {"support": True},
        "workDoneProgress": True,
    },
    "general": {
        "staleRequestSupport": {
            "cancel": True,
            "retryOnContentModified": ["textDocument/semanticTokens/full"],
        },
        "positionEncodings": ["utf-16"],
    },
    "notebookDocument": {"synchronization": {"dynamicRegistration": True}},
}

NEOVIM: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"]},
    "window": {
        "showDocument": {"support": True},
        "showMessage": {"messageActionItem": {"additionalPropertiesSupport": True}},
        "workDoneProgress": True,
    },
    "workspace": {
        "applyEdit": True,
        "configuration": True,
        "didChangeConfiguration": {"dynamicRegistration": False},
        "didChangeWatchedFiles": {"dynamicRegistration": False, "relativePatternSupport": True},
        "inlayHint": {"refreshSupport": True},
        "semanticTokens": {"refreshSupport": True},
        "workspaceEdit": {"resourceOperations": ["rename", "create", "delete"]},
        "workspaceFolders": True,
    },
    "textDocument": {
        "codeAction": {
            "codeActionLiteralSupport": {
                "codeActionKind": {"valueSet": ["", "quickfix", "refactor", "refactor.rewrite"]}
            },
            "dataSupport": True,
            "dynamicRegistration": True,
            "isPreferredSupport": True,
            "resolveSupport": {"properties": ["edit", "command"]},
        },
        "codeLens": {"dynamicRegistration": False, "resolveSupport": {"properties": ["command"]}},
        "hover": {"contentFormat": ["markdown", "plaintext"], "dynamicRegistration": True},
        "publishDiagnostics": {
            "dataSupport": True,
            "relatedInformation": True,
            "tagSupport": {"valueSet": [1, 2]},
        },
        "synchronization": {
            "didSave": True,
            "dynamicRegistration": False,
            "willSave": True,
            "willSaveWaitUntil": True,
        },
    },
}
