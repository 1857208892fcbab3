{{- define "waltz.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "waltz.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "waltz.name" .) -}}
{{- end -}}

{{- define "waltz.selector" -}}
app.kubernetes.io/name: waltz-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "waltz.labels" -}}
{{ include "waltz.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "waltz.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "waltz.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "waltz.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The annotations of post-delete hooks; the argument is the hook's weight, which orders them. */ -}}
{{- define "waltz.releaseHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end -}}

{{- /* The namespace of the example cluster: one that the operator manages. */ -}}
{{- define "waltz.exampleNamespace" -}}
{{- .Values.watchNamespace | default .Release.Namespace -}}
{{- end -}}

{{- define "waltz.consoleName" -}}
{{- include "waltz.name" . }}-console
{{- end -}}

{{- define "waltz.consoleNamespace" -}}
{{- .Values.console.cluster.namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "waltz.consoleSelector" -}}
app.kubernetes.io/name: waltz-console
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "waltz.consoleLabels" -}}
{{ include "waltz.consoleSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /*
The folder with the certificate for HTTPS, empty for HTTP. /tls has the certificate that the operator
makes for the cluster: a secret that the user names may be that of a client, which browsers refuse.
*/ -}}
{{- define "waltz.consoleCertificate" -}}
{{- with .Values.console -}}
{{- if not .https.enabled -}}
{{- else if .https.secretName -}}
/https
{{- else if and .cluster.name .cluster.tls.enabled (not .cluster.tls.secretName) -}}
/tls
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "waltz.consoleScheme" -}}
{{- if include "waltz.consoleCertificate" . }}https{{ else }}http{{ end -}}
{{- end -}}

{{- define "waltz.consoleProbe" -}}
path: /
port: console
scheme: {{ include "waltz.consoleScheme" . | upper }}
httpHeaders:
  - name: Host
    value: localhost
{{- end -}}
